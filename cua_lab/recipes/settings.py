"""Every number a run can be given, with its default and its allowed range.

Data model: `Recipe` = how to run and to serve, plus stages; a `Stage` trains one policy on one
task: `policy`, `tasks`, `tool`, `agent`, `sft`, `grpo`, `trainer`, `eval`. Invariant: a default
stands here, in `trainer_settings`, or in the class of a lower room that a section extends
(`policy.shape`, `computer.config`), and nothing heavy is imported; YAML files hold what differs,
and why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.coordinates import Space
from cua_lab.computer.settling import NoSettle, QuietFramebuffer, Settle
from cua_lab.policy.shape import Shape
from cua_lab.ranges import Count, Natural, NonNegative, Range, Rate, Share
from cua_lab.recipes.trainer_settings import TrainerSettings


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The run as a whole."""

    seed: int = 0
    concurrency: Count = 32
    """Episodes played at once; another number may move a log-probability by 1e-7."""
    threads: Count = 1
    """Of torch; two are 1.5x faster on an idle machine and 10x slower on a busy one."""
    checkpoint_every: Natural = 10
    """GRPO steps between checkpoints; 0 keeps only the last."""
    keep_checkpoints: Count = 2
    stop_after_ungraded_steps: Count = 3
    """GRPO steps in a row without one graded episode after which the run stops and counts the
    causes; an evaluation without one stops it at once."""
    watchdog_minutes: NonNegative = 10.0
    """Without an episode or a step that ended, after so long a run says what each of its episodes
    waits for, as it does at once on `kill -USR1`; 0 says nothing by itself."""
    lanes: Count = 1
    """Parts of each update's gradient that are computed side by side, a thread each: the same bits
    on any number of cores, others than with another number of lanes. For a plain trainer in one
    process; a stage that is alone on two cores trains nearly twice as fast with two."""
    parallel_stages: Count | None = None
    """Stages at once, each in a process, with the same results: half the time for two of them on
    two cores. `None`: as many as there are cores for their threads; one with a server outside."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The server that samples."""

    kind: Literal["embedded", "vllm", "sglang"] = "embedded"
    """In this process, or a server outside it that takes new weights after each step."""
    url: str | None = None
    """Of a vllm or sglang that runs already, up to and without `/v1`; it must read this machine's
    files. `None`: the run launches one and stops it at its end."""
    model: str | None = None
    """The name that requests give; `None`: the first that the server lists."""
    flags: tuple[str, ...] = ()
    """Of a launched engine, as its own command line takes them."""
    keep_pushes: Count = 2
    """Folders of weights that stay after the server has taken newer ones."""
    max_batch: Count = 64
    """Requests decoded together."""
    cache_mib: Count = 256
    """Of prefixes kept between the turns of a conversation; embedded."""
    retries: Natural = 3
    """How often a request that brought no answer (no connection, 429, 502, 503, 504) is sent again,
    after 0.5, 1, 2, ... s; the same seed draws the same tokens. vllm and sglang."""

    def __post_init__(self) -> None:
        outside = {"url": self.url, "model": self.model, "flags": self.flags or None}
        for name, value in outside.items():
            if self.kind == "embedded" and value is not None:
                raise ValueError(f"engine.{name} is {value!r}, but engine.kind is embedded")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"engine.url is {self.url!r}; give http://host:port")
        if self.url is not None and self.flags:
            raise ValueError("engine.flags are of an engine that the run launches; leave url out")


@dataclass(frozen=True, slots=True)
class PolicySettings(Shape):
    """The network: a checkpoint folder, or the shape of a new small Qwen3-VL."""

    checkpoint: str | None = None
    """Start from this folder; the shape is then not used."""


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What is played."""

    template: str
    """A template of the env package, such as `targets-click`."""
    package: str = "cua_lab.envs.lab"
    args: dict[str, Any] = field(default_factory=dict)
    """Arguments of the template, the same for every episode; the seed is dealt per group."""
    also: dict[str, Any] = field(default_factory=dict)
    """More templates of the package, each with its arguments, `2048-best-merge: {keys: 1}`: one
    policy learns them all. They are dealt in turn to demonstrations, groups and fresh episodes,
    and success is counted by template. `args` are the first one's; `width` and `height` hold for
    all."""
    vary: dict[str, Any] = field(default_factory=dict)
    """One more argument with a list of its values, `page: [click-test, click-color]`: one policy
    learns them all. They are dealt in turn to demonstrations, groups and fresh episodes."""
    runtime: Literal["local", "subprocess", "docker", "daytona"] = "local"
    """Where episodes run; all but `local` start a process or a container for each."""
    image: str | None = None
    """Of docker and daytona; `None` is the name in the package's Dockerfile.hud."""

    def __post_init__(self) -> None:
        for name, values in self.vary.items():
            if not isinstance(values, list) or len(values) < 2 or _repeats(values):
                raise ValueError(f"vary.{name} is {values!r}; give a list of different values")
            if name in self.args or name == "seed":
                taken = "dealt by the run" if name == "seed" else "fixed by args"
                raise ValueError(f"vary.{name}: this argument is {taken}")
        if self.also and self.vary:
            raise ValueError("either `also` or `vary`: a stage deals templates or arguments")
        if self.template in self.also:
            raise ValueError(f"also.{self.template}: this is the stage's template already")
        for name, args in self.also.items():
            if not isinstance(args, dict):
                raise ValueError(f"also.{name} is {args!r}; give a mapping of arguments, or {{}}")
        if len(self.vary) > 1:
            raise ValueError(f"vary takes one argument, not {len(self.vary)}: {list(self.vary)}")


def _repeats(values: list[Any]) -> bool:
    return any(value in values[:index] for index, value in enumerate(values))


@dataclass(frozen=True, slots=True)
class ToolSettings(ToolConfig):
    """The `computer` tool, with defaults for the embedded desktop and the small policy."""

    coordinate_space: Space = "0-1000"
    max_keys_per_call: Count = 20
    """Longer lists come back as a tool error."""
    pace_ms: Natural = 0
    """Between the clicks of a double click; real screens need 20."""
    quiet_ms: Natural = 0
    """A screenshot waits until the screen has not changed for this long: 40 on a real browser. 0 is
    for the embedded desktop, which answers with what it has become."""
    react_ms: Natural = 60
    """At least this long after the action; more where many browsers share few cores."""
    at_most_ms: Natural = 1000
    """A page that never rests is shown after this."""
    screen_timeout_s: Annotated[float, Range(0.1)] = 30.0
    """A screen that sends no frame for this long, and none on a new connection, is dead: longer
    than a machine that was put to sleep for a moment, or stopped, is away."""
    settle: Settle = field(init=False)
    """Made of the three."""

    def __post_init__(self) -> None:
        settle: Settle = NoSettle()
        if self.quiet_ms:
            settle = QuietFramebuffer(self.quiet_ms, self.react_ms, self.at_most_ms)
        object.__setattr__(self, "settle", settle)
        ToolConfig.__post_init__(self)  # super() does not find its way in a class with slots


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One episode's conversation."""

    max_turns: Count = 1
    max_tokens: Count = 64
    """Of one answer; a call cut off here is malformed."""
    temperature: Annotated[float, Range(0.01, 5)] = 1.0
    """Of training rollouts and sampled evaluation; 1 is the policy's own distribution."""
    short_prompt: bool = True
    """One line of system prompt instead of the whole: it is paid for in every turn."""
    first_screenshot: bool = True
    """Show the screen with the task; without it the first turn goes on asking for it."""
    stop_on: tuple[Literal["length", "malformed_tool_call"], ...] = (
        "length",
        "malformed_tool_call",
    )
    """Answers that end the episode instead of being answered with an error."""
    after_rewrite: Literal["truncate", "split"] = "truncate"
    """When a prompt rewrites history: drop what follows, or start a second sequence."""
    token_in: bool = field(default=False, metadata={"formerly": "exact_continuation"})
    """Send the ids on record instead of rendering history again: no divergence can occur."""
    timeout_s: Annotated[float, Range(1)] = 120.0
    """Of one episode; one that takes longer failed."""


@dataclass(frozen=True, slots=True)
class SafetySettings:
    """The gate in front of the policy's calls (`cua_lab.safety`); nobody is there to be asked, so
    what a policy file would have confirmed is refused."""

    policy: str | None = None
    """`lab`, `miniwob`, `default`, or a file; `None` is no gate."""
    risky_penalty: NonNegative = 0.0
    """Off the reward for each call that the policy file does not simply allow. It is taken off
    before rewards are compared within a group: what all members earn changes nothing, and with
    `grpo.scale: std` any difference counts as the whole spread of an otherwise equal group."""
    refused_penalty: NonNegative = 0.0
    """On top, for each that was rejected or denied."""
    audit: bool = True
    """Whether every decision goes to `audit/STAGE.jsonl`; `cua-lab audit verify` checks it."""

    def __post_init__(self) -> None:
        if self.policy is None and (self.risky_penalty or self.refused_penalty):
            raise ValueError("a penalty needs a policy that says what is risky: set safety.policy")


@dataclass(frozen=True, slots=True)
class SftSettings:
    """The warm-up on demonstrations."""

    demonstrations: Count = 1000
    """Scripted episodes."""
    steps: Natural = 400
    """0: none, for a checkpoint that knows its tool already. It trains every weight, in float32 on
    one process, whatever `trainer` says of GRPO."""
    batch: Count = 32
    """Demonstrations a step."""
    lr: Rate = 1.5e-3
    warmup_steps: Natural = 20
    cooldown_steps: Natural = 20
    """Last steps, in which the rate falls to zero."""
    weight_decay: Share = 0.0
    grad_clip: Annotated[float, Range(1e-3)] = 1.0
    stop_at: Share | None = None
    """Cool down and stop when this share of sampled episodes succeeds: GRPO needs failures too."""
    check_every: Count = 25
    """Steps between two looks at `stop_at`."""
    check_from: Natural = 0
    """No look before this step: each plays episodes, and at first all of them fail."""
    check_episodes: Count = 64
    optimizer: Literal["adamw", "muon"] = "adamw"
    """Muon moves the hidden matrices, AdamW the rest: embeddings, head, norms, biases."""
    muon_lr: Rate = 2e-2
    """Of the hidden matrices, with `optimizer: muon`; it warms up and cools down as `lr` does."""
    player: dict[str, Any] = field(default_factory=dict)
    """Arguments of the scripted player, such as its noise."""
    trajectories: str | None = None
    """JSONL of conversations to learn from instead of a scripted player, for envs that bring none;
    `cua_lab.demonstrators.trajectories` says what a line holds."""
    think: str | None = None
    """What the player says before each call, by name: `pair` for 2048-near-win. None: it only
    acts."""


@dataclass(frozen=True, slots=True)
class GrpoSettings:
    """The reinforcement step; formulas in `cua_lab.training.losses` and `.advantages`."""

    steps: Natural = 50
    groups: Count = 8
    """Start states a step."""
    group_size: Annotated[int, Range(2)] = 16
    """Episodes from each start state: the baseline is their mean."""
    lr: Rate = 2e-4
    warmup_steps: Natural = 5
    """Optimizer updates until the full learning rate."""
    cooldown_steps: Natural = 0
    """Last steps, in which the rate falls to zero. At a full rate of 4e-4 a policy that reads says
    96% of the screens right after one update and 75% after the next: it would end on either."""
    weight_decay: Share = 0.0
    beta1: Share = 0.9
    beta2: Share = 0.999
    grad_clip: Annotated[float, Range(1e-3)] = 1.0
    epochs: Count = 1
    """Passes over a step's samples."""
    minibatches: Count = 1
    """Optimizer updates a pass; with more than one in all, the ratio moves and the clip acts."""
    scale: Literal["std", "none"] = "std"
    """Of the advantages; "none" is Dr.GRPO."""
    ratio: Literal["token", "sequence"] = "token"
    """"sequence" is GSPO, with clips of about 3e-4."""
    clip_low: Share = 0.2
    clip_high: NonNegative = 0.28
    normalise: Literal["token", "sequence", "constant"] = "token"
    constant: Annotated[float, Range(1)] | None = None
    """Tokens; with `normalise: constant` only."""
    zero_variance: Literal["counted", "left_out"] = "counted"
    """Whether groups of equal rewards stand in the loss's denominators: counted, an update is as
    much smaller as fewer groups tell anything. Reasons in `cua_lab.training.losses.row_weights`."""
    kl: Literal["none", "k1", "k2", "k3"] = "none"
    kl_coef: NonNegative = 0.0
    """Above 0 a frozen copy of the starting policy is kept and scored."""
    tis_cap: Annotated[float, Range(1)] | None = None
    """Truncated importance sampling against the engine's log-probabilities."""
    ahead: Annotated[int, Range(0, 1)] = 0
    """1: the next step's episodes are played while this one trains, so they come from weights one
    step old: up to twice as fast where playing and training take turns, on samples that `tis_cap`
    has to correct. A resumed run's first step is not ahead, so its bits differ."""
    tokens_per_microbatch: Count = 8192
    """Padded tokens in one forward pass. For 64 games of the laptop recipe: 1.5 GB at 8192, 2.1 GB
    at 16384, and no faster."""
    logprob_gap_limit: NonNegative = 1e-4
    """Largest difference between engine and trainer on one policy token: above it the step is
    refused. In float32 they agree within 1e-5; wrong positions give 0.14; bf16 needs 0.2."""

    def __post_init__(self) -> None:
        if (self.normalise == "constant") != (self.constant is not None):
            raise ValueError(
                '"normalise: constant" and a number of tokens in "constant" go together'
            )
        if self.kl == "none" and self.kl_coef > 0:
            raise ValueError(f'kl_coef is {self.kl_coef} but kl is "none"; choose k1, k2 or k3')
        if self.ahead and self.tis_cap is None:
            raise ValueError(
                "ahead is 1, so samples are a step old, but tis_cap is not set: their share of the"
                " gradient would be wrong; 2 is usual"
            )
        if self.beta1 == 1 or self.beta2 == 1:
            raise ValueError("beta1 and beta2 must be below 1")


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """Fresh episodes before and after. On the way there is nothing to evaluate: every training step
    deals new start states, so its reward is that of fresh episodes."""

    episodes: Count = 128
    ablations: tuple[Literal["shuffled", "blank", "random", "blind"], ...] = (
        *("shuffled", "blank", "random"),
    )
    """The trained policy with other screenshots, a policy that acts at random, and `blind`: the
    best fixed actions, found by search on other starts (templates of the lab and the browser)."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One policy learns one task."""

    name: str
    tasks: TaskSettings
    policy: PolicySettings = field(default_factory=PolicySettings)
    tool: ToolSettings = field(default_factory=ToolSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    safety: SafetySettings = field(default_factory=SafetySettings)
    sft: SftSettings = field(default_factory=SftSettings)
    grpo: GrpoSettings = field(default_factory=GrpoSettings)
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    eval: EvalSettings = field(default_factory=EvalSettings)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w-]{0,59}", self.name):
            raise ValueError(
                f"a stage's name is the name of its folder and of its overrides: {self.name!r}"
                " should be up to 60 letters, digits, - or _"
            )


@dataclass(frozen=True, slots=True)
class Recipe:
    """A whole run."""

    name: str
    stages: tuple[Stage, ...]
    run: RunSettings = field(default_factory=RunSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"a recipe needs stages with different names, not {names}")
        if self.engine.url is not None and (self.run.parallel_stages or 1) > 1:
            raise ValueError(
                f"run.parallel_stages is {self.run.parallel_stages}, but the server of engine.url"
                " holds the weights of one policy; leave one of them out"
            )

    def stage(self, name: str) -> Stage:
        """A stage by its name."""
        return {stage.name: stage for stage in self.stages}[name]
