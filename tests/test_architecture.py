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

# The edges of each app: where Django, Channels and Celery begin. Every other module is pure: it imports no framework
# and no edge, so that it can be read, tested and run (`python -m inference.worker`) without them.
EDGES = {
    "market": ("market.admin", "market.api", "market.apps", "market.commands", "market.management",
               "market.migrations", "market.models", "market.presence", "market.projections", "market.queries",
               "market.schemas", "market.store", "market.tasks", "market.views"),
    "relay": ("relay.apps", "relay.authenticate", "relay.consumers", "relay.routing"),
    "inference": ("inference.api", "inference.apps", "inference.bootstep", "inference.jobs",
                  "inference.management", "inference.migrations", "inference.models", "inference.node_host", "inference.reports",
                  "inference.slice_views", "inference.stats", "inference.tasks", "inference.views"),
    "config": ("config.apps", "config.asgi", "config.celery", "config.checks", "config.management", "config.settings",
               "config.tasks", "config.urls", "config.watchdog"),
}  # fmt: skip
# The one place where pure modules of an app use another: the relay's pure half carries the frames of both ends.
PURE_ACROSS = {"inference": "relay"}

# Edges of an app: the only importers of another app's modules, and what they may import.
ALLOWED_ACROSS: dict[str, tuple[str, ...]] = {
    "market": (),
    "relay": ("market.queries", "market.presence", "market.errors"),
    "inference": ("relay", "market.queries", "market.commands", "market.errors", "market.builds", "market.presence",
                  "config.supervisor", "config.tasks"),
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


def is_pure(module: str) -> bool:
    edges = EDGES.get(app_of(module), (app_of(module),))
    return not any(module == edge or module.startswith(f"{edge}.") for edge in edges)


@pytest.mark.parametrize("app", EDGES)
def test_pure_modules_import_no_framework_and_no_edge(app: str) -> None:
    known = project_modules()
    wrong = [
        f"{module} imports {name}"
        for module, path in sources(app)
        if is_pure(module)
        for name in sorted(imports(module, path))
        if app_of(name) in FRAMEWORKS
        or (name in known and not (is_pure(name) and app_of(name) in {app, PURE_ACROSS.get(app)}))
    ]

    assert not wrong, "\n".join(wrong)


def test_pure_modules_work_where_no_framework_is_installed() -> None:
    modules = sorted(module for module in project_modules() if is_pure(module) and not module.endswith("__main__"))
    # None makes the import fail as if the framework were not installed, also for a package that tries and gives up.
    program = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({FRAMEWORKS!r}))\n"
        f"for name in {modules!r}: importlib.import_module(name)"
    )

    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
