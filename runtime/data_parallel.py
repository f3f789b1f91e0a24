"""Sum gradients over the axes that hold replicas: once a step, in buckets under backward."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from runtime.comm import Comm, Handle
from runtime.sharding import Registry

BUCKET_BYTES = 4 << 20


@dataclass(slots=True)
class _Sent:
    """A bucket under way: the parameters, how many gradients each held, and the message."""

    parameters: list[nn.Parameter]
    counts: list[int]
    handle: Handle


@dataclass
class Buckets:
    """The replicas' sum of gradients.

    The first step counts how many gradients each parameter gets (micro-batches, tied uses); later
    steps send a parameter's gradient when its last one has arrived. If a step brings more than
    that, the parameter is sent again, whole, so the result never depends on the guess.

    Parameters
    ----------
    comm : Comm
    registry : Registry
    early : bool
        Whether to send under backward.
    """

    comm: Comm
    registry: Registry
    early: bool
    _expected: dict[nn.Parameter, int] = field(default_factory=dict)
    _seen: dict[nn.Parameter, int] = field(default_factory=dict)
    _bucket: list[nn.Parameter] = field(default_factory=list)
    _sent: list[_Sent] = field(default_factory=list)
    _watched: dict[nn.Parameter, tuple[str, ...]] = field(default_factory=dict)

    def watch(self) -> None:
        """Follow the parameters made since the last call."""
        for parameter, placement in self.registry.placements.items():
            if parameter not in self._watched:
                grid = self.comm.grid
                axes = tuple(a for a in placement.sum_axes if grid[a].size > 1)
                self._watched[parameter] = axes
                if axes == ("data",) and placement.z_size == 1:
                    parameter.register_post_accumulate_grad_hook(self.ready)

    def ready(self, parameter: nn.Parameter) -> None:
        """Note that a gradient was added to a parameter's ``.grad``."""
        self._seen[parameter] = self._seen.get(parameter, 0) + 1
        if (
            self.early
            and self._seen[parameter] == self._expected.get(parameter)
            and self._watched.get(parameter) == ("data",)
        ):
            self._fill(parameter)

    def finish(self) -> None:
        """Return once every gradient is summed."""
        self.watch()
        done = self._receive(self._flush())
        rest: dict[tuple[str, ...], list[nn.Parameter]] = {}
        for parameter, axes in self._watched.items():
            if axes and parameter not in done and parameter.grad is not None:
                rest.setdefault(axes, []).append(parameter)
        late = rest.pop(("data",), [])
        if self.early:
            for parameter in late:
                self._fill(parameter)
            self._receive(self._flush())
        else:
            self._one_by_one(late)
        for axes, parameters in rest.items():
            self._together(parameters, axes)
        self._expected, self._seen = self._seen, {}

    # -- messages -----------------------------------------------------------------------------

    def _fill(self, parameter: nn.Parameter) -> None:
        self._bucket.append(parameter)
        if sum(p.numel() * p.element_size() for p in self._bucket) >= BUCKET_BYTES:
            self._send()

    def _send(self) -> None:
        parameters, self._bucket = self._bucket, []
        flat = torch.cat([_grad(p).view(-1) for p in parameters])
        handle = self.comm.all_reduce(flat, "data", "gradient", layer="bucket")
        counts = [self._seen.get(p, 0) for p in parameters]
        self._sent.append(_Sent(parameters, counts, handle))

    def _flush(self) -> list[_Sent]:
        if self._bucket:
            self._send()
        sent, self._sent = self._sent, []
        return sent

    def _receive(self, sent: list[_Sent]) -> set[nn.Parameter]:
        """Take the sums in; the parameters whose sums are complete."""
        done = set()
        for bucket in sent:
            parts = bucket.handle.wait().split([p.numel() for p in bucket.parameters])
            for parameter, count, part in zip(bucket.parameters, bucket.counts, parts, strict=True):
                if self._seen.get(parameter, 0) == count:
                    parameter.grad = part.view_as(parameter)
                    done.add(parameter)
        return done

    def _one_by_one(self, parameters: list[nn.Parameter]) -> None:
        """Without buckets: each weight in a message of its own, the vectors in one."""
        vectors = []
        for parameter in parameters:
            placement = self.registry.placements[parameter]
            if len(placement.shape) == 1:
                vectors.append(parameter)
                continue
            gradient = _grad(parameter).view(-1)
            self.comm.all_reduce(gradient, "data", "gradient", layer=placement.name).wait()
        if vectors:
            self._together(vectors, ("data",))

    def _together(self, parameters: list[nn.Parameter], axes: tuple[str, ...]) -> None:
        """Sum several gradients over some axes, in one message per axis."""
        flat = torch.cat([_grad(p).view(-1) for p in parameters])
        self.comm.sum_over(flat, axes, "gradient", layer="vectors")
        for parameter, part in zip(
            parameters, flat.split([p.numel() for p in parameters]), strict=True
        ):
            parameter.grad = part.view_as(parameter)


def _grad(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
