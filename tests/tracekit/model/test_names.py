"""What names mean: communication of every library, copies, and the many names that are neither."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tracekit.core.errors import UsageError
from tracekit.io.sources import SMALL_BYTES
from tracekit.model.names import load

NAMES = load()

#: names as traces write them, with the operation they tell; None where they tell none
COMMUNICATION = {
    # NCCL: before 2.19, since, symmetric memory since 2.27, debug builds, mangled
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": "all_reduce",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "all_reduce",
    "ncclKernel_AllReduce_TREE_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)": "all_reduce",
    "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": "broadcast",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, ncclWork*)": "all_gather",
    "ncclKernel_ReduceScatter_RING_LL128_Sum_bf16": "reduce_scatter",
    "ncclKernel_Reduce_RING_LL_Sum_float": "reduce",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)": "send_recv",
    "_Z42ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_tP11ncclDevCommmP8ncclWork": "send_recv",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)": "all_reduce",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_gather",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        "reduce_scatter"
    ),
    "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "send_recv",
    "ncclDevKernel_AlltoAll_RING_LL": "all_to_all",
    "ncclDevKernelDebug_Reduce_Sum_f32_RING_LL": "reduce",
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs4K)": "all_reduce",
    "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16": "all_reduce",
    "ncclSymkDevKernel_AllGather_LLMC": "all_gather",
    "ncclSymkDevKernel_ReduceScatter_LL_sum_f8e4m3(ncclSymkDevWorkArgs4K)": "reduce_scatter",
    "ctranKernelAllReduceTree(int*, CtranAlgoDeviceState*)": "all_reduce",
    # RCCL names no operation
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)": None,
    "ncclDevKernel_Generic_1": None,
    "_Z23ncclDevKernel_Generic_424ncclDevKernelArgsStorageILm4096EE": None,
    "void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)": None,
    # MSCCL, MSCCL++, MCCL
    "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)": None,
    "mscclpp::collective::allreducePacket": "all_reduce",
    "mscclpp::collective::allgatherFullmesh2": "all_gather",
    "mcclKernel_AllReduce_RING_SIMPLE_Sum___mt_bfloat16": "all_reduce",
    "mcclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(mcclWorkElem)": "send_recv",
    # oneCCL, HCCL, MTIA
    "oneccl_allreduce<Rt64_PCIE<bf16>>": "all_reduce",
    "oneccl_reduce_scatter": "reduce_scatter",
    "hcom_allReduce__503_0_1": "all_reduce",
    "hcom_allGather_": "all_gather",
    "hcom_alltoallv_": "all_to_all",
    "HcclReduceScatter": "reduce_scatter",
    "mtia_hccl_all_reduce": "all_reduce",
    # NVSHMEM
    "void nvshmemi_proxy_rma_entrypoint_blocking<1>(int)": None,
    "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)": "barrier",
    "_Z36barrier_on_stream_kernel_threadgroupIL13threadgroup_t1EEvii": None,
    "void (anonymous namespace)::exchangeSplitAndOffset(long*, int, int)": "all_to_all",
    "void (anonymous namespace)::allToAllV(void*, void*, long*, unsigned long, int, int)": (
        "all_to_all"
    ),
    # expert parallelism
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)": "all_to_all",
    "void deep_ep::internode_ll::combine<3, 10, 7168, 9>(void*, void*, int*)": "all_to_all",
    "void deep_ep::intranode::cached_notify_combine<8>(void**, int*, int, int)": "all_to_all",
    "void deep_ep::internode_ll::dispatch_opt1_hidden6144<1, false, 1>(void*)": "all_to_all",
    "void dpsk::ep::cuda::combine<1>(void*)": "all_to_all",
    "void uccl::internode_ll::dispatch<true, 3>(void*)": "all_to_all",
    "void nixl_ep::dispatch<true>(void*)": "all_to_all",
    "void hybrid_ep::dispatch_kernel<64, true>(hybrid_ep::dispatch_kernel_param_t)": "all_to_all",
    "void hybrid_ep::combine_kernel<64>(hybrid_ep::combine_kernel_param_t)": "all_to_all",
    "hybrid_ep::device_sync_kernel<8>": "barrier",
    "EpDispatchIntraNodeKernel_bf16": "all_to_all",
    "void mori::moe::EpCombineIntraNodeKernel<__hip_bfloat16>(args)": "all_to_all",
    "_ZN4mori3moe25EpDispatchIntraNodeKernelI14__hip_bfloat16EEvv": "all_to_all",
    "moeA2ADispatchKernel<8, false>": "all_to_all",
    "void tensorrt_llm::kernels::moe_comm::moeAllToAllKernel(params)": "all_to_all",
    "void dlslime::intranode_alltoall_kernel(void*)": "all_to_all",
    "_on_device_all_to_all_v_kernel": "all_to_all",
    # all-reduce of serving engines
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)": "all_reduce",
    "void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*)": "all_reduce",
    "void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8, false>(aiter::RankData*)": (
        "all_reduce"
    ),
    "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataE": "reduce_scatter",
    "void sglang::cross_device_reduce_scatter<__half, 8>(void*)": "reduce_scatter",
    "void sglang::cross_device_all_gather<__half, 8>(void*)": "all_gather",
    "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half>>": "all_reduce",
    "aiter::allreduce_prototype_twoshot<bf16>": "all_reduce",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true>(params)": "all_reduce",
    "lowPrecisionTwoShotAllReduceKernel": "all_reduce",
    "void tensorrt_llm::lamport_style_one_shot_all_reduce_norm_kernel<float>": "all_reduce",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<8>": (
        "all_reduce"
    ),
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<8>": (
        "all_reduce"
    ),
    "void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<4, __nv_bfloat16>": (
        "all_reduce"
    ),
    "moereduction_allreduce_fusion_kernel_oneshot_lamport": "all_reduce",
    "void mnnvl_lamport_all_gather<__nv_bfloat16, 4>(ptrs)": "all_gather",
    "mnnvl_lamport_reduce_scatter<float, 8>": "reduce_scatter",
    # symmetric memory of torch and of Triton
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>": "all_reduce",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>": (
        "all_reduce"
    ),
    "void (anonymous namespace)::one_shot_all_reduce_kernel<float, 4, 8, true>": "all_reduce",
    "allreduce_two_shot_multimem_intra_node_kernel": "all_reduce",
    "_multimem_all_gather_kernel": "all_gather",
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*)": "all_gather",
    "(anonymous namespace)::direct_dcp_q_gather_multimem_kernel(uint4 const*)": None,
    "void (anonymous namespace)::barrier_kernel(unsigned int**, int, int, int)": "barrier",
    "(anonymous namespace)::put_signal_kernel(unsigned int**, int, int)": None,
    # userbuffers of Transformer Engine
    "void userbuffers_fp16_sum_inplace_gpu_rw_ag<2>(int, int, int, void**)": None,
    "kuserbuffers_pushrecv(int, int, int*, int*, int)": None,
}

#: names that look like communication and are not
COMPUTE = [
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
    "void at::native::vectorized_gather_kernel<16, long>(char*, char*)",
    "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>",
    "void at::native::batch_norm_collect_statistics_channels_last_kernel<WelfordOps>",
    "void (anonymous namespace)::SyncBatchNormStatsKernel<float>",
    "void at::native::batch_norm_reduce_statistics_kernel<float, float, int>",
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0_GSU1",
    "void hipblaslt_ext::reduce_kernel<float>",
    "triton_per_fused_add_all_reduce_layer_norm_0",
    "triton_poi_fused_add_all_reduce_4",
    "triton_red_fused_all_gather_into_tensor_native_layer_norm_3",
    "triton_poi_fused_all_to_all_single_0",
    "void block_all_reduce_sum_f32x4_f32_kernel<128>(float*, float*, int)",
    "void cub::DeviceReduceKernel<cub::DeviceReducePolicy<float>>",
    "void cub::DeviceScanKernel<cub::AgentScanPolicy>",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float>",
    "std::enable_if<true, void>::type internal::gemvx::kernel<float>",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
    "nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 4, 8>(long const*)",
    "void deep_ep::internode_ll::clean_low_latency_buffer<256>(int*, int)",
    "void hybrid_ep::scan<128>(bool const*, hybrid_ep::tmp_state_t*)",
    "moeA2APrepareDispatchKernel",
    "void StepDispatchKernel<float>(float*)",
    "local_device_load_rmsnorm",
    "void moe::dev::routing::routingIndicesOffsetsKernel",
    "_combined_routing_memset",
    "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits>",
    "_fwd_grouped_kernel_stage1",
    "void recat_copy_async_kernel<float>(long const*)",
    "embedding_kernel",
    "",
]

MEMORY = [
    "Memcpy HtoD (Pinned -> Device)",
    "Memcpy DtoD (Device -> Device)",
    "Memcpy PtoP (Device -> Device)",
    "Memcpy M2D (MEMORY(Unknown) -> DEVICE)",
    "Memset (Device)",
    "Memset (Unknown)",
    "MEMORY_COPY_HOST_TO_DEVICE",
    "MEMORY_COPY_DEVICE_TO_DEVICE",
    "CopyDeviceToDevice",
    "CopyHostToDevice",
    "FillBuffer",
    "__amd_rocclr_copyBuffer",
    "__amd_rocclr_copyBuffer.kd",
    "__amd_rocclr_fillBufferAligned",
    "hipMemcpyWithStream",
    "dma_request",
]


def role(name: str) -> str:
    """The role of a device row of that name; compute where no rule knows it."""
    rule = NAMES.rule(name)
    return rule.role if rule else "compute"


@pytest.mark.parametrize("name", COMMUNICATION)
def test_communication_is_known_by_name(name: str) -> None:
    """Kernels of every collective library are communication, with the operation they name."""
    assert role(name) == "comm"
    assert NAMES.op(None, name) == COMMUNICATION[name]


@pytest.mark.parametrize("name", COMPUTE)
def test_names_that_only_look_like_communication(name: str) -> None:
    """Words such as reduce, gather and dispatch make no communication; no rule means compute."""
    assert role(name) == "compute"


@pytest.mark.parametrize("name", MEMORY)
def test_copies_and_fills_are_known_by_name(name: str) -> None:
    """Copies and fills of all vendors are memory, also where they are recorded as kernels."""
    assert role(name) == "memory"


@pytest.mark.parametrize("name", ["event_wait", "event_record", "Stream Sync", "Event Sync"])
def test_waits_recorded_among_kernels_are_no_work(name: str) -> None:
    """Rows that some devices record among their kernels, but that only wait, have no role."""
    assert role(name) == "none"


@pytest.mark.parametrize(
    ("recorded", "word"),
    [
        ("allreduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("all_gather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("ALLTOALL_BASE", "all_to_all"),
        ("broadcast", "broadcast"),
        ("_reduce_oop", "reduce"),
        ("send", "send_recv"),
        ("recv 1<-0", "send_recv"),
        ("barrier", "barrier"),
    ],
)
def test_a_recorded_operation_is_told_in_torch_s_words(recorded: str, word: str) -> None:
    """Every spelling of an operation becomes one word, and wins over the kernel's name."""
    assert NAMES.op(recorded, "ncclDevKernel_Generic_1") == word


def test_an_unknown_recorded_operation_leaves_the_kernel_to_tell() -> None:
    """A spelling nobody knows is passed over in favour of the kernel's own name."""
    assert NAMES.op("wibble", "ncclDevKernel_AllGather_RING_LL") == "all_gather"
    assert NAMES.op("wibble", "gemm") is None
    assert NAMES.op(None) is None


@pytest.mark.parametrize(
    ("cat", "kind"),
    [
        ("kernel", "kernel"), ("Kernel", "kernel"), ("gpu_memcpy", "memory"), ("Memset", "memory"),
        ("cuda_runtime", "launch"), ("cuda_driver", "launch"), ("xpu_runtime", "launch"),
        ("cpu_op", "operator"), ("Operator", "operator"), ("user_annotation", "annotation"),
        ("collective_comm", "collective"), ("python_function", "python"),
        ("gpu_user_annotation", ""), ("cuda_sync", ""), ("ac2g", ""), ("", ""), ("Trace", ""),
    ],
)  # fmt: skip
def test_categories_of_all_generations(cat: str, kind: str) -> None:
    """A category means the same in every spelling; annotations on devices and waits are no work."""
    assert NAMES.kind(cat) == kind


@pytest.mark.parametrize(
    ("dtype", "num_bytes"),
    [("Double", 8), ("Float", 4), ("BFloat16", 2), ("Half", 2), ("Byte", 1), ("Long", 8),
     ("Float8_e4m3fn", 1), ("Float8_e5m2fnuz", 1), ("c10::BFloat16", 2), ("float", 4)],
)  # fmt: skip
def test_sizes_of_types(dtype: str, num_bytes: int) -> None:
    """Each dtype has the size of one element in memory."""
    assert NAMES.dtype_bytes[dtype] == num_bytes


@pytest.mark.parametrize(
    ("desc", "axis"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"), ("tensor_model_parallel_group", "tp"), ("tp", "tp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"), ("mesh_dp", "dp"), ("mesh_dp_shard", "dp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"), ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"), ("x", "x"), ("z_rs", "z"), ("data", "data"),
        ("mesh_wibble", "wibble"), ("default_pg", None), ("undefined", None), ("", None),
        ("some group", None), ("mesh_", None), (None, None),
    ],
)  # fmt: skip
def test_axes_are_read_from_descriptions(desc: str | None, axis: str | None) -> None:
    """A group's description gives its axis in any trainer's words; what names none gives none."""
    assert NAMES.axis(desc) == axis


# -- a user's own rules -----------------------------------------------------------------------


def test_a_user_s_rules_come_first_and_tables_are_merged(tmp_path: Path) -> None:
    """Own rules win over the built-in ones; own tables add to theirs."""
    own = tmp_path / "names.toml"
    own.write_text(
        """
        [[rule]]
        role = "comm"
        pattern = "^my_exchange"
        library = "mine"
        op = "all_to_all"
        [[rule]]
        role = "compute"
        pattern = "ncclDevKernel_Generic"
        [categories]
        kernel = ["npu_op"]
        [ops]
        all_reduce = ["my_sum"]
        [dtype_bytes]
        Float4 = 1
        [axes]
        tp = ["my tensor group"]
        """
    )
    names = load(str(own))
    rule = names.rule("my_exchange_kernel<8>")
    assert rule is not None
    assert (rule.role, rule.library, rule.op) == ("comm", "mine", "all_to_all")
    generic = names.rule("ncclDevKernel_Generic_1")
    assert generic is not None
    assert generic.role == "compute"
    reduced = names.rule("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    assert reduced is not None
    assert reduced.role == "comm"
    assert (names.kind("NPU_op"), names.kind("kernel")) == ("kernel", "kernel")
    assert (names.op("my_sum"), names.op("allreduce")) == ("all_reduce", "all_reduce")
    assert (names.dtype_bytes["Float4"], names.dtype_bytes["Float"]) == (1, 4)
    assert (names.axis("My Tensor Group"), names.axis("mesh_tp")) == ("tp", "tp")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[rule]]\nrole = 'comm'", "needs role .* and pattern"),
        ("[[rule]]\nrole = 'magic'\npattern = 'x'", "needs role"),
        ("[[rule]]\nrole = 'comm'\npattern = 'x'\ncolour = 'red'", "unknown key 'colour'"),
        ("[[rule]]\nrole = 'comm'\npattern = '('", r"bad pattern '\('"),
        ("[[rule]]\nrole = 'comm'\npattern = 5", "bad pattern 5"),
        ("rule = 'x'", r"must be written as \[\[rule\]\]"),
        ("rule = [5]", "bad rule 5"),
        ("[rules]\n", r"unknown table 'rules'; did you mean \[rule\]"),
        ("[host]\nspan = '['", r"bad pattern '\['"),
        ("[ops]\nall_reduce = 'sum'", r"\[ops\] all_reduce must be a list of texts"),
        ("[ops]\nall_reduce = [5]", r"\[ops\] all_reduce must be a list of texts"),
        ("[categories]\nkernel = 7", r"\[categories\] kernel must be a list of texts"),
        ("[axes]\ntp = {}", r"\[axes\] tp must be a list of texts"),
        ("[dtype_bytes]\nFloat4 = 'half'", r"\[dtype_bytes\] Float4 must be a whole number"),
        ("[dtype_bytes]\nFloat4 = true", r"\[dtype_bytes\] Float4 must be a whole number"),
        ("[dtype_bytes]\nFloat4 = -1", r"\[dtype_bytes\] Float4 must be a whole number"),
        ("not toml", "not valid TOML"),
        ("[[rule]]\nrole = 'comm'\npattern = 'x'\nop = 5", "op = 5 in a rule is no text"),
        ("[[rule]]\nrole = 'comm'\npattern = 'x'\nop = {a = 1}", "op = .* in a rule is no text"),
        ("[[rule]]\nrole = 'comm'\npattern = 'x'\nlibrary = []", "library = .* is no text"),
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("[host]\nspan = '" + "(" * 5000 + ")" * 5000 + "'", "brackets are nested too deeply"),
        ("[host]\nspan = 'a{99999999999999999999}'", "bad pattern"),
        ("[host]\nspna = 'x'", r"unknown key 'spna' in \[host\]; did you mean span\? known keys"),
        ("[host]\nzzz = 'x'", r"unknown key 'zzz' in \[host\]; known keys: span, call, wait,"),
        ("[categories]\nkernels = ['x']", r"unknown key 'kernels' .*did you mean kernel\?"),
        ("[dtype_bytes]\nFloat4 = 5000", r"\[dtype_bytes\] Float4 must be a whole number"),
    ],
)
def test_a_faulty_names_file_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    """Whatever is wrong with a user's file, the line names the file, the value and the rule."""
    own = tmp_path / "names.toml"
    own.write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        load(str(own))
    assert str(own) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_names_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that is absent, a folder or no text is one line with the reason."""
    for path, words in ((tmp_path / "none.toml", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(UsageError, match=words):
            load(str(path))
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        load(str(tmp_path / "bad.toml"))


def test_what_is_no_small_file_is_no_names_file(tmp_path: Path) -> None:
    """A pipe or device, which may never end, a large file and an empty name are refused."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large.toml").write_bytes(b"#" * (SMALL_BYTES + 1))
    for path, words in (
        (str(tmp_path / "pipe"), "a pipe or device, where a file is needed"),
        ("/dev/zero", "a pipe or device, where a file is needed"),
        (str(tmp_path / "large.toml"), "larger than 4 MiB"),
        ("", "the name of the names file is empty"),
    ):
        with pytest.raises(UsageError, match=words):
            load(path)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """Rules that were changed between two openings count from then on."""
    own = tmp_path / "names.toml"
    for role in ("comm", "memory"):
        own.write_text(f"[[rule]]\nrole = '{role}'\npattern = '^mine'")
        rule = load(str(own)).rule("mine")
        assert rule is not None
        assert rule.role == role


def test_hostile_names_are_only_text() -> None:
    """A name with the signs of a pattern, or as long as a file, is looked up like any other."""
    for name in ("(((", "[a-", "deep_ep::" * 100_000, "\x00nccl", ".*" * 1000, "深 nccl"):
        rule = NAMES.rule(name)
        assert (rule is not None) == ("nccl" in name)
