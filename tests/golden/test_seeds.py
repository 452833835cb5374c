"""Seeds and schedules: functions of the step, without collisions."""

from agentgym_core.evaluate import evaluation_orders
from agentgym_core.protocols import TaskPool
from agentgym_core.rollout import Attempts
from agentgym_core.samplers import UniformTaskSampler
from agentgym_core.seeds import derive_seed
from agentgym_core.settings import EvaluationConfig
from agentgym_core.testing.worlds import Countdown
from agentgym_core.types import Sampling, Task


def attempts(seed):
    return Attempts(
        environment="world",
        task=Task(id="world_0"),
        num=8,
        max_rounds=1,
        sampling=Sampling(),
        seed=seed,
    )


def test_no_two_attempts_share_a_seed():
    seeds = [
        attempts(derive_seed(run, "train", step, place, "world", f"world_{place}")).sampling_seed(n)
        for run in range(3)
        for step in range(20)
        for place in range(8)
        for n in range(8)
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_seed_is_the_same_in_every_process():
    assert derive_seed(42, "sample", 7, "textcraft_12", 0) == 1358235498574866649


def test_siblings_face_one_world_and_draw_their_own_tokens():
    one = attempts(5)
    assert one.environment_seed == attempts(5).environment_seed
    assert len({one.environment_seed, *(one.sampling_seed(n) for n in range(8))}) == 9


def test_the_order_of_tasks_is_a_function_of_the_step():
    tasks = tuple(Task(id=f"world_{n}") for n in range(10))
    pools = [TaskPool(environment="world", weight=1.0, tasks=tasks)]
    sampler = UniformTaskSampler()

    def chosen(step):
        picked = sampler.select(pools, 4, step=step, seed=3, state=sampler.initial_state())
        return [task.id for _, task in picked]

    order = [chosen(step) for step in range(5)]
    assert [chosen(step) for step in reversed(range(5))] == order[::-1]
    played = [name for step in order for name in step]
    assert len(set(played[:10])) == len(set(played[10:20])) == 10, "each task once an epoch"
    assert played[:10] != played[10:20]


def test_evaluation_has_its_own_horizon_sampling_and_seeds():
    """Nothing of the training, its step included, is among its arguments."""
    settings = EvaluationConfig(split="test", max_rounds=7, temperatures=(0.5,), num_samples=2)
    orders = evaluation_orders({"world": Countdown()}, settings, 0.5)
    assert {order.max_rounds for order in orders} == {7}
    assert {order.sampling.temperature for order in orders} == {0.5}
    assert {order.num for order in orders} == {2}
    assert orders == evaluation_orders({"world": Countdown()}, settings, 0.5)
