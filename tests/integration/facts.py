"""What runs are compared by."""

from agentgym_core.files import read_json_lines
from agentgym_core.metrics import is_time


def facts(folder):
    """Everything that a run wrote down, but for times."""
    files = [folder / "metrics.jsonl", *sorted(folder.glob("rollouts/*/*.jsonl"))]
    return {
        str(file.relative_to(folder)): [
            {key: value for key, value in row.items() if not is_time(key)}
            for row in read_json_lines(file)
        ]
        for file in files
    }
