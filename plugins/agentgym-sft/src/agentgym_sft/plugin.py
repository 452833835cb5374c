"""Registers `sft`."""

from agentgym_core import hookimpl
from agentgym_core.hookspecs import Register


@hookimpl
def register_algorithms(register: Register) -> None:
    """Supervised fine-tuning on demonstrations."""
    register("sft", "agentgym_sft.sft:SFT")
