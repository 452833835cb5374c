"""Several processes that train one policy, through torch.distributed."""

import datetime
import os
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from agentgym_core.errors import RankError
from agentgym_core.ranks import ALONE, Ranks
from agentgym_core.wording import one_line

T = TypeVar("T")


def connect(timeout_seconds: float) -> Ranks:
    """Join the processes that a launcher has started; it tells each its place in variables.

    Raises:
        ValueError: a variable is missing, or they do not all come within the time.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ALONE
    timeout = datetime.timedelta(seconds=timeout_seconds)
    try:
        # The host's memory is what gloo is for, also where gradients lie on GPUs.
        backends = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backends, timeout=timeout)
        return TorchRanks(dist.new_group(backend="gloo", timeout=timeout))
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"the {os.environ['WORLD_SIZE']} processes of the launcher do not find each other: "
            f"{one_line(error)}"
        ) from error


class TorchRanks(Ranks):
    """This process in the default group of torch.distributed."""

    def __init__(self, group: Any) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._group = group
        """For values in the host's memory."""

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in order, on every rank."""
        values: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(values, value, group=self._group)
        except RuntimeError as error:
            raise lost(self, error) from error
        return values

    def close(self) -> None:
        """Leave the group."""
        dist.destroy_process_group()


def lost(ranks: Ranks, error: RuntimeError) -> RankError:
    """What to say when the others do not answer."""
    others = [str(rank) for rank in range(ranks.size) if rank != ranks.rank]
    who = f"rank {others[0]} is" if len(others) == 1 else f"one of the ranks {', '.join(others)} is"
    return RankError(
        f"rank {ranks.rank}: {who} gone, and its own message says why if it could give one. The "
        f"same command goes on from the last checkpoint ({one_line(error)})"
    )


def sum_gradients(ranks: Ranks, parameters: Sequence[Tensor]) -> None:
    """Add up every parameter's gradient over all ranks; a rank without one counts as 0.

    Raises:
        RankError: another rank is gone.
    """
    if ranks.size == 1:
        return
    present = ranks.gather([parameter.grad is not None for parameter in parameters])
    for parameter, anywhere in zip(parameters, np.any(present, axis=0), strict=True):
        if anywhere and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    try:
        sums = [
            dist.all_reduce(parameter.grad, async_op=True)
            for parameter in parameters
            if parameter.grad is not None
        ]
        for one in sums:
            one.wait()
    except RuntimeError as error:
        raise lost(ranks, error) from error
