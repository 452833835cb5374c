"""Registers the engine `local` and the backend `torch`."""

from agentgym_core import hookimpl


@hookimpl
def register_engines(register):  # noqa: D103
    register("local", "agentgym_torch.engine:LocalEngine")


@hookimpl
def register_backends(register):  # noqa: D103
    register("torch", "agentgym_torch.backend:TorchBackend")
