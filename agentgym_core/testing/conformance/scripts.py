"""What the suite of environments runs in fresh interpreters."""

TASKS = """
import json, pickle, sys
try:
    environment = pickle.loads(sys.stdin.buffer.read())
except (ModuleNotFoundError, AttributeError) as error:
    sys.exit(f"missing {error}")
for split in sys.argv[1:]:
    for task in environment.tasks(split):
        print(json.dumps([split, task.id, task.category, dict(task.data)], sort_keys=True))
"""


EPISODE = """
import asyncio, json, pickle, sys
try:
    environment, task, seed, actions = pickle.loads(sys.stdin.buffer.read())
except (ModuleNotFoundError, AttributeError) as error:
    sys.exit(f"missing {error}")
from agentgym_core.serving.protocol import observation_to_json
async def play():
    session = await environment.open()
    seen = [await session.reset(task, seed)]
    for action in actions:
        seen.append(await session.step(action))
    await session.close()
    return seen
for observation in asyncio.run(play()):
    print(json.dumps(observation_to_json(observation), sort_keys=True))
"""
