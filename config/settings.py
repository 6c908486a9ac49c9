"""Every setting, in one table: the only module that reads the environment.

Each row names its variable, default and meaning; `docs/settings.md` lists them. Other code receives values as
arguments, or reads `django.conf.settings` at the edges (views, consumers, tasks, commands).
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from config.environment import DEVELOPMENT_SECRET_KEY, Environment, EnvironmentValueError

BASE_DIR = Path(__file__).resolve().parent.parent
ENVIRONMENT = Environment()
_env = ENVIRONMENT

# --- server -----------------------------------------------------------------------------------------------------------
VAR_DIR = _env.path("VAR_DIR", BASE_DIR / "var", "Folder for run.json, the SQLite database, secrets, logs and spools.")
DEBUG = _env.flag("DEBUG", False, "Django's debug pages; never on a server that strangers reach.")
SECRET_KEY = _env.text(
    "SECRET_KEY", DEVELOPMENT_SECRET_KEY, "Signs sessions and links; `manage.py up` makes one in VAR_DIR."
)
ALLOWED_HOSTS = _env.words("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"], "Host names that the server answers.")
PUBLIC_URL = _env.text(
    "PUBLIC_URL", "http://127.0.0.1:8000", "The address at which workers and users reach the server."
)
TRUSTED_PROXIES = _env.words(
    "TRUSTED_PROXIES", [], "Addresses or networks of proxies whose X-Forwarded-For is believed; empty: none."
)
WEB_DRAIN_SECONDS = _env.integer(
    "WEB_DRAIN_SECONDS",
    0,
    "At SIGTERM a web process lets nobody in, moves its workers and waits so long for open answers, in seconds; "
    "0: it stops at once.",
)
LOG_FORMAT = _env.text(
    "LOG_FORMAT",
    "line",
    "line: for people; json: one object a line, with ids and without secrets (docs/operations.md).",
)

# --- stores -----------------------------------------------------------------------------------------------------------
DATABASE_URL = _env.text(
    "DATABASE_URL",
    "",
    "postgresql://user:password@host:port/name, or empty for SQLite in VAR_DIR (sqlite:///path works too).",
)
REDIS_URL = _env.redis_url(
    "REDIS_URL", "redis://host:port/db or unix:///path; empty: `manage.py up` starts an embedded Valkey."
)

# --- backbone ---------------------------------------------------------------------------------------------------------
MODEL_PATH = _env.path(
    "MODEL_PATH",
    BASE_DIR / "models" / "qwen35moe-demo-q4_k_m.gguf",
    "The GGUF that the backbone runs (first part of a split set).",
)
MODEL_FOLDERS = _env.words(
    "MODEL_FOLDERS", [], "Folders whose GGUFs operators may index and publish; empty: only MODEL_PATH is served."
)
BACKBONE_LANES = _env.integer(
    "BACKBONE_LANES",
    2,
    "llama.cpp contexts that share the model; each computes one batch at a time; 0: all layers are on STAGES.",
)
BACKBONE_SEQUENCES = _env.integer("BACKBONE_SEQUENCES", 16, "Sequences generated at once, over all lanes.", minimum=1)
BACKBONE_CONTEXT_TOKENS = _env.integer(
    "BACKBONE_CONTEXT_TOKENS", 1024, "Longest sequence, prompt and answer together, in tokens.", minimum=16
)
BACKBONE_THREADS = _env.integer("BACKBONE_THREADS", 0, "Cores used by all lanes together; 0: all cores.")
BACKBONE_GPU_LAYERS = _env.integer(
    "BACKBONE_GPU_LAYERS",
    0,
    "Layers whose dense path runs on a GPU (llama-cpp-python built for one); experts stay in RAM; 0: none.",
)
BACKBONE_DRAIN_SECONDS = _env.seconds(
    "BACKBONE_DRAIN_SECONDS",
    20.0,
    "At SIGTERM a backbone lets running generations end for so many seconds, then others resume them.",
)
BACKBONE_PREFILL_TOKENS = _env.integer(
    "BACKBONE_PREFILL_TOKENS",
    256,
    "Most prompt tokens that a lane reads between two tokens of the answers it generates.",
    minimum=1,
)
BACKBONE_KEPT_SEQUENCES = _env.integer(
    "BACKBONE_KEPT_SEQUENCES",
    0,
    "States of ended sequences that each lane keeps for prompts that begin with the same tokens; each costs the memory "
    "of a sequence.",
)
BACKBONE_TRACE_DIR = _env.text(
    "BACKBONE_TRACE_DIR", "", "Folder for one trace per lane (every decode), empty: no traces."
)
BACKBONE_TOKEN = _env.text(
    "BACKBONE_TOKEN", "", "Credential of relay role B; empty: the file backbone.token in VAR_DIR."
)
RELAY_URLS = _env.words(
    "RELAY_URLS", [], "WebSocket addresses of the relays that backbones dial; empty: those that registered in Redis."
)
DISPATCH_DEADLINE_SECONDS = _env.seconds(
    "DISPATCH_DEADLINE_SECONDS", 2.0, "Longest wait for one worker in one layer, before history."
)
DISPATCH_RESULTS = _env.text(
    "DISPATCH_RESULTS",
    "exact",
    "What workers send back: exact (a float32 row per expert, the bits of plain llama.cpp), or partial sums per token: "
    "sums-f32, sums-f16 (fewer bytes, not exact; docs/verification.md).",
)
BACKBONE_TRACE_BYTES = _env.integer(
    "BACKBONE_TRACE_BYTES",
    4 << 30,
    "Most bytes of traces on one host: half for a start's own lanes, which then write no more, half for earlier ones.",
    minimum=1,
)
HOT_SET_BYTES = _env.integer(
    "HOT_SET_BYTES",
    0,
    "Most bytes of experts that the backbone pins in RAM and computes itself while it waits for workers; 0: none.",
)
HOT_SET_MILLISECONDS = _env.integer(
    "HOT_SET_MILLISECONDS",
    0,
    "Time that those may take in one layer of one step; 0: as long as the workers' answers take (measured).",
)
STAGES = _env.words(
    "STAGES",
    [],
    "HOST:PORT of stages (`python -m inference.stage`) on which the backbone serves rings; empty: none "
    "(docs/stages.md).",
)
STAGE_SECRET = _env.text(
    "STAGE_SECRET", "", "The secret that stages and backbone share; empty: the file stage.secret in VAR_DIR."
)
BACKBONE_OFFERS_STAGES = _env.flag(
    "BACKBONE_OFFERS_STAGES",
    False,
    "Offer the model's layers to stages that join through the market, and serve rings over them; they see prompts.",
)
RING_LANES = _env.integer(
    "RING_LANES",
    1,
    "Lanes on rings of stages; each has a place on every stage, several keep all of them busy.",
    minimum=1,
)
RING_SEQUENCES = _env.integer(
    "RING_SEQUENCES", 4, "Sequences generated at once on rings, over all their lanes.", minimum=1
)
RING_THREADS = _env.integer("RING_THREADS", 1, "Cores that each stage uses for one step of a ring.", minimum=1)
RING_PATIENCE_SECONDS = _env.seconds(
    "RING_PATIENCE_SECONDS", 60.0, "A step waits so long for somebody to replace a lost stage; then its answers fail."
)
RING_STEP_SECONDS = _env.seconds(
    "RING_STEP_SECONDS", 60.0, "A ring that has not answered a step for so long is given up, and another one opened."
)
SLOW_STEP_SECONDS = _env.seconds(
    "SLOW_STEP_SECONDS", 1.0, "A layer that waited longer for its workers is named in the log, and for whom it waited."
)
TRUSTED_PASSES = _env.integer(
    "TRUSTED_PASSES",
    100,
    "Audits in a row, all passed, that let a node compute for API keys that trust few (docs/api.md).",
    minimum=1,
)
CREDIT_WINDOW_SECONDS = _env.seconds("CREDIT_WINDOW_SECONDS", 60.0, "Length of one credit window per node.")
SPOOL_SECONDS = _env.seconds("SPOOL_SECONDS", 10.0, "Time between two writes of the open credit window to disk.")

# --- relay ------------------------------------------------------------------------------------------------------------
RELAY_ADDRESS = _env.text(
    "RELAY_ADDRESS",
    "",
    "WebSocket address at which backbones dial this very relay process; empty: it is not registered.",
)
RELAY_PUBLIC_URL = _env.text(
    "RELAY_PUBLIC_URL", "", "WebSocket address at which workers reach this very relay process; empty: RELAY_ADDRESS."
)
RELAY_PING_SECONDS = _env.seconds(
    "RELAY_PING_SECONDS", 10.0, "Time between two keep-alive frames; three missed ones end a session."
)
RELAY_RECHECK_SECONDS = _env.seconds(
    "RELAY_RECHECK_SECONDS", 15.0, "Time between two checks of a session's token and claims (at most 30)."
)
RELAY_ORIGINS = _env.words(
    "RELAY_ORIGINS",
    [],
    "Origins of other sites' pages that may open sockets, such as https://lend.example; *: all. Ours always may.",
)

# --- market -----------------------------------------------------------------------------------------------------------
LEASE_SECONDS = _env.seconds("LEASE_SECONDS", 120.0, "A claim lives this long after its node was last seen.")
UPKEEP_SECONDS = _env.seconds("UPKEEP_SECONDS", 5.0, "Time between two runs of the market's timers.")
DEMAND_SECONDS = _env.seconds("DEMAND_SECONDS", 300.0, "Time between two DemandObserved events of one build.")
TARGET_REPLICAS = _env.integer(
    "TARGET_REPLICAS", 1, "Replicas per expert before its price falls to the stand-by rate.", minimum=1
)

HOLD_SECONDS = _env.seconds(
    "HOLD_SECONDS",
    86400.0,
    "The audit window: so long after its credit a reward can be voided; then it is available.",
)
PAYOUT_MINIMUM_MICROCREDITS = _env.integer(
    "PAYOUT_MINIMUM_MICROCREDITS", 1_000_000, "An account with less available is not put on a payout.", minimum=1
)
PAYOUT_RESERVE_PERCENT = _env.integer(
    "PAYOUT_RESERVE_PERCENT", 5, "Share of what is available that a payout leaves behind for reversals."
)
LEDGER_CHECK_SECONDS = _env.seconds("LEDGER_CHECK_SECONDS", 3600.0, "Time between two checks of the books.")
REGISTRATIONS_PER_MINUTE = _env.integer(
    "REGISTRATIONS_PER_MINUTE",
    30,
    "Devices that one address may register in a minute; 100 times that from here.",
    minimum=1,
)
REGISTRATION = _env.text(
    "REGISTRATION",
    "open",
    "Who may open an account or enrol a device: open (everybody), invite (whoever has a code, docs/owners.md), closed.",
)
DEVICES_PER_ACCOUNT = _env.integer("DEVICES_PER_ACCOUNT", 200, "Devices that one account may have.", minimum=1)
INVITES_PER_ACCOUNT = _env.integer(
    "INVITES_PER_ACCOUNT", 5, "Invites of one account that may be open at once (REGISTRATION=invite); 0: none."
)
DEVICE_REQUESTS_PER_MINUTE = _env.integer(
    "DEVICE_REQUESTS_PER_MINUTE",
    600,
    "Requests that one device may make in a minute; pieces of slices not counted.",
    minimum=1,
)
ACCOUNT_CHANGES_PER_MINUTE = _env.integer(
    "ACCOUNT_CHANGES_PER_MINUTE", 60, "Changes that one account may make on its pages in a minute.", minimum=1
)

# --- API and pages ----------------------------------------------------------------------------------------------------
API_QUEUE_LENGTH = _env.integer(
    "API_QUEUE_LENGTH", 512, "Answers open at once, running or waiting; more get 429 with Retry-After.", minimum=1
)
API_OPEN_PER_KEY = _env.integer("API_OPEN_PER_KEY", 128, "Answers that one API key may have open at once.", minimum=1)
API_REQUESTS_PER_MINUTE = _env.integer(
    "API_REQUESTS_PER_MINUTE", 600, "Requests that one API key may make in a minute; 0: no limit."
)
API_TOKENS_PER_DAY = _env.integer(
    "API_TOKENS_PER_DAY",
    0,
    "Tokens that one API key may ask for in a day, prompts and the longest answers it allows; 0: no limit.",
)
GENERATION_KEEP_SECONDS = _env.seconds(
    "GENERATION_KEEP_SECONDS", 604800.0, "An ended generation's row (counts and times, no text) is kept this long."
)
API_PATIENCE_SECONDS = _env.seconds(
    "API_PATIENCE_SECONDS", 600.0, "An answer is given up when no token of it came for this long."
)
DEMO_PROMPT = _env.flag(
    "DEMO_PROMPT", False, "Offer the prompt box to strangers too; a server that only this machine reaches always does."
)
DEMO_REQUESTS_PER_MINUTE = _env.integer(
    "DEMO_REQUESTS_PER_MINUTE", 20, "Prompts that one address may send through the page in a minute.", minimum=1
)
DEMO_TOKENS_PER_HOUR = _env.integer(
    "DEMO_TOKENS_PER_HOUR",
    20_000,
    "Tokens that one address may ask for through the page in an hour, by the longest answers it allows.",
    minimum=1,
)

INSTALLED_APPS = [
    "daphne",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
    "ninja",
    "config",
    "market",
    "relay",
    "inference",
    "frontend",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "inference.openai.middleware.api_shortcut",
    "config.readable_forms.readable_forms",
    "frontend.static_files.StaticFilesMiddleware",
    "frontend.security.policy_everywhere",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
WHITENOISE_USE_FINDERS = True
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
TIME_ZONE = "UTC"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1 << 20

# Behind a proxy that ends TLS and says so in X-Forwarded-Proto (deploy/nginx): cookies never travel in the open, and
# browsers come back by HTTPS only.
IS_HTTPS = PUBLIC_URL.startswith("https://")
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if IS_HTTPS else None
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if IS_HTTPS else 0
SILENCED_SYSTEM_CHECKS = [
    # The proxy redirects to HTTPS; what asks a process directly (Prometheus, `manage.py up`) has no TLS to go to.
    "security.W008",
    # Other hosts of the same domain, and the browsers' preload list, are the operator's own decision.
    "security.W005",
    "security.W021",
]


def database(url: str, var_dir: Path) -> dict[str, Any]:
    """The Django database entry for a URL; raises EnvironmentValueError for a scheme that is not supported."""
    if not url or url.startswith("sqlite:///"):
        name = url.removeprefix("sqlite:///") or str(var_dir / "expertswarm.sqlite3")
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": name,
            # IMMEDIATE: a transaction that will write takes the lock when it begins, so that two writers queue
            # instead of failing at their first write (SQLite documentation, "isolation").
            "OPTIONS": {
                "timeout": 30,
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
            },
        }
    parts = urlsplit(url)
    if not re.fullmatch(r"postgres(ql)?", parts.scheme):
        raise EnvironmentValueError(f"DATABASE_URL must start with postgresql:// or sqlite:///, not {parts.scheme!r}")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        # A request under ASGI has a thread of its own: a connection kept beyond it is kept for nobody, until a garbage
        # collection. `bench scale` met PostgreSQL's limit of 100 at 70 requests a second, a seventh of them failed.
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,
    }


DATABASES = {"default": database(DATABASE_URL, VAR_DIR)}
# For questions that a page waits for: a Redis that does not answer is given up soon, and what needs it says so. Asked
# twice only where a kept connection broke: it may have been one to a Redis that was restarted.
REDIS_ANSWER_SECONDS = 1.5
REDIS_ANSWER_OPTIONS: dict[str, Any] = {
    "socket_timeout": REDIS_ANSWER_SECONDS,
    "socket_connect_timeout": REDIS_ANSWER_SECONDS,
    "retry": Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
}
CACHES: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "OPTIONS": REDIS_ANSWER_OPTIONS,
    }
    if REDIS_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}
CHANNEL_LAYERS: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": {"hosts": [REDIS_URL]}}
    if REDIS_URL
    else {"BACKEND": "channels.layers.InMemoryChannelLayer"}
}

# --- Celery -----------------------------------------------------------------------------------------------------------
# Redis redelivers a task that runs longer than the visibility timeout, and a generation may take hours. Every process
# that talks to the broker must use the same number, so both transports are set here.
CELERY_VISIBILITY_TIMEOUT_SECONDS = 6 * 3600
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://") if REDIS_URL else "memory://"
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": CELERY_VISIBILITY_TIMEOUT_SECONDS}
CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS = {"visibility_timeout": CELERY_VISIBILITY_TIMEOUT_SECONDS}
CELERY_RESULT_BACKEND = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# None: try for ever. A worker outlives a restart of Redis.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# A generation goes on through a lost broker connection; running it twice is harmless.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
# Nobody watches Celery's own events; without gossip and mingle a worker starts a second earlier.
CELERY_WORKER_SEND_TASK_EVENTS = False

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
        "json": {"()": "config.json_log.JsonFormatter"},
    },
    "filters": {"refusals": {"()": "config.refusal_log.RefusalsInOneLine"}},
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": "json" if LOG_FORMAT == "json" else "line",
            "filters": ["refusals"],
        }
    },
    "root": {"handlers": ["console"], "level": "INFO"},
    # One line per request that we make, or two per task (timers run some every few seconds), is no news.
    "loggers": {name: {"level": "WARNING"} for name in ("httpx", "gguf", "celery.app.trace", "celery.worker.strategy")},
}
