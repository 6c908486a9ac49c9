"""Who may import whom. The arrows are those of the README's layout: lower modules never point back up.

Read from the source (imports under `if TYPE_CHECKING` count too), and proven once in a fresh interpreter.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
APPS = ("market", "relay", "inference", "frontend", "config")
FRAMEWORKS = {"django", "channels", "celery", "ninja", "daphne", "kombu"}

# Must work where no framework is installed, with everything that they import of this tree.
PURE = {
    "relay": ("relay.addresses", "relay.errors", "relay.frames", "relay.protocol", "relay.messages", "relay.client",
              "relay.backbone_link"),
    "market": ("market.errors", "market.events", "market.fold", "market.pricing", "market.coverage",
               "market.ledger", "market.claim_rules"),
    "inference": ("inference.errors", "inference.gguf_index", "inference.slices", "inference.slice_file",
                  "inference.ggml", "inference.kernel", "inference.numpy_kernel", "inference.backend",
                  "inference.engine", "inference.sampling", "inference.trace", "inference.dispatch",
                  "inference.replica_table", "inference.work_report", "inference.worker",
                  "inference.token_reader", "inference.openai.parameters", "inference.openai.answers",
                  "inference.openai.chat_template"),
    "config": ("config.environment", "config.embedded_redis", "config.supervisor", "config.version"),
}  # fmt: skip
# The only use that pure modules make of another app: the relay's pure half carries the frames of both ends.
PURE_ACROSS = {"inference": "relay"}

# Edges of an app: the only importers of another app's modules, and what they may import.
ALLOWED_ACROSS: dict[str, tuple[str, ...]] = {
    # `replay --to` writes a scratch database with the same options as the live one.
    "market": ("config.settings", "config.rate_limit"),
    "relay": ("market.queries", "market.presence", "market.errors"),
    "inference": ("relay", "market.queries", "market.commands", "market.errors", "market.builds", "market.presence",
                  "market.benchmarks",
                  "config.supervisor", "config.tasks", "config.celery", "config.broker", "config.embedded_redis",
                  "config.version", "config.rate_limit"),
    "frontend": ("market", "relay", "inference", "config"),
    "config": ("market", "relay", "inference", "frontend"),
}  # fmt: skip


def sources(app: str) -> Iterator[tuple[str, Path]]:
    """(module name, file) of every module of an app."""
    for path in sorted((ROOT / app).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(module: str, path: Path) -> set[str]:
    """Full names of what a file imports; of `from a import b` both `a` and `a.b`."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")
                base = ".".join([*above[: len(above) - node.level + 1], *([base] if base else [])])
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return found


def within(name: str, allowed: tuple[str, ...]) -> bool:
    """Whether a module lies in one of the allowed ones; a package that leads to an allowed module is allowed too."""
    return any(name == one or name.startswith(f"{one}.") or one.startswith(f"{name}.") for one in allowed)


def app_of(name: str) -> str:
    return name.partition(".")[0]


def project_modules() -> set[str]:
    return {module for app in APPS for module, _ in sources(app)}


@pytest.mark.parametrize("app", APPS)
def test_an_app_imports_of_others_only_what_the_arrows_allow(app: str) -> None:
    known = project_modules()
    wrong = [
        f"{module} imports {name}"
        for module, path in sources(app)
        for name in sorted(imports(module, path))
        if name in known and app_of(name) != app and not within(name, ALLOWED_ACROSS[app])
    ]

    assert not wrong, "\n".join(wrong)


def pure_modules(app: str) -> list[str]:
    """The named modules, packages with all that is in them."""
    return [
        module
        for module, _ in sources(app)
        if any(module == root or module.startswith(f"{root}.") for root in PURE[app])
        and not module.endswith("__main__")
    ]


def reached(roots: list[str], graph: dict[str, set[str]]) -> set[str]:
    """The modules of this tree that importing the roots loads, packages above them included."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        if module in graph and module not in found:
            found.add(module)
            waiting += graph[module] | {module.rpartition(".")[0]}
    return found


@pytest.mark.parametrize("app", PURE)
def test_pure_modules_reach_no_framework_and_no_other_app(app: str) -> None:
    graph = {module: imports(module, path) for each in APPS for module, path in sources(each)}
    wrong = [
        f"{module} imports {name}"
        for module in sorted(reached(pure_modules(app), graph))
        for name in sorted(graph[module])
        if app_of(name) in FRAMEWORKS or (name in graph and app_of(name) not in {app, PURE_ACROSS.get(app)})
    ]

    assert not wrong, "\n".join(wrong)


def test_pure_modules_work_where_no_framework_is_installed() -> None:
    modules = [module for app in PURE for module in pure_modules(app)]
    # None makes the import fail as if the framework were not installed, also for a package that tries and gives up.
    program = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({FRAMEWORKS!r}))\n"
        f"for name in {modules!r}: importlib.import_module(name)"
    )

    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr


def test_every_pure_module_exists() -> None:
    known = project_modules()

    assert [root for roots in PURE.values() for root in roots if root not in known] == []
