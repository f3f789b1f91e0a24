"""The recorder: what a training loop does, written as one trace per rank into a run folder."""
