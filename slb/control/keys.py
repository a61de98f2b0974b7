"""Every key and channel in Redis; nothing else spells one. docs/architecture.md, "Keys in Redis", has their types,
how long they live, and who writes them.

An entry of `slb:changes` is `<route's key> <member>`, `<key of a hash> <field>`, or the key of a hash that was
replaced or removed whole, which is a number of each of its fields. Entries of `slb:leases` have the first form.

Of each model's jobs, `slb:{jobs:<model>}:` and then what follows, by `lua/jobs.lua` only (what each is stands in
`lua/jobs_state.lua`):
`job:<id>`, `run:<id>`, `result:<id>`, `queue:<class>`, `classes`, `number`, `delayed`, `holders`, `held:<holder>`,
`dropped:<holder>`, `running`, `deadlines`, `ended`, `dead`, `callbacks`, `counts`, `batches`, `watched`, `looks`,
`buffered`, `times`.
Jobs that have not ended, and dead ones, live for good; those that have ended for the model's `result_ttl`, once
their callback is delivered or given up; `watched` for 20 s from each renewal on. `slb:jobs:with-jobs` is the set of
the models that may have jobs. `slb:jobs:models` is a hash, for good: a model, and what is set on it, as JSON; and a
mark of these data.
"""

import hashlib
import json
import re

from slb.control.hash_slots import tags_of
from slb.dns_names import normal_target
from slb.errors import InvalidName
from slb.model import HealthCheck
from slb.names import duration, is_normal_path
from slb.setting_types import LONGEST_PATH

MEMBERS = "slb_"
SETTINGS = "slb:route:"
UPSTREAM = "slb:upstream:"
INSTANCE = "slb:instance:"
INSTANCES = "slb:instances"
IDENTITY = "slb:identity:"
CANARY = "slb:canary:"
GENERATION = "slb:generation"
RESTORING = "slb:restoring"
CHANGES = "slb:changes"
LEASES = "slb:leases"
HEALTH = "slb:{health}:"
HEALTH_CHANNEL = "slb:health"
GRANTED_CHANNEL = "slb:granted:"
INSTANCES_CHANNEL = "slb:instances"
JOB_MODELS = "slb:jobs:models"
WITH_JOBS = "slb:jobs:with-jobs"
JOBS_CHANNEL = "slb:jobs:events"
FLEET_ASK_CHANNEL = "slb:fleet:ask"
FLEET_FRAMES_CHANNEL = "slb:fleet:frames"
FLEET_TO_CHANNEL = "slb:fleet:to:"
FLEET_CHANGES = "slb:fleet:changes"
DISCOVERED = "slb:discovered:{slb_"
DISCOVERY_WRITERS = "slb:{discovery}:writers"

_FIELD = re.compile(r"[A-Za-z0-9_.-]{1,64}")

GENERATION_PARTS = 16

OURS = "slb[_:]*"
"""The SCAN pattern that finds all of the above in one pass."""

MOST_INSTANCES = 1000
"""That are known of; any after them serves all the same."""

LONGEST = len(SETTINGS) + LONGEST_PATH
"""Characters of the longest key that the watcher reads: what is longer is not ours, and not looked at."""


def route_key(path: str) -> str:
    """`/p1` -> `slb_p1`, `/` -> `slb_`."""
    return MEMBERS + path[1:]


def settings_key(path: str) -> str:
    """`/p1` -> `slb:route:/p1`."""
    return SETTINGS + path


def upstream_key(member: str) -> str:
    """`10.0.0.1:80` -> `slb:upstream:10.0.0.1:80`."""
    return UPSTREAM + member


def discovered_key(path: str) -> str:
    """`/p1` -> `slb:discovered:{slb_p1}`: in a cluster it is in the slot of `slb_p1`. No path has a brace."""
    return f"{DISCOVERED}{path[1:]}}}"


def instance_key(instance: str) -> str:
    """`<id>` -> `slb:instance:<id>`."""
    return INSTANCE + instance


def generation_keys(of_cluster: bool) -> list[str]:
    """One key; in a cluster one in each of so many equal parts of its slots: a node that has lost its data has lost
    one of these too, where it has a whole part."""
    if not of_cluster:
        return [GENERATION]
    return [f"{GENERATION}:{{{tag}}}" for tag in tags_of(GENERATION_PARTS)]


def identity_key(instance: str) -> str:
    """`<id>` -> `slb:identity:<id>`."""
    return IDENTITY + instance


def membership(path: str, member: str) -> str:
    """How `slb:changes` names that a member is in a route: `slb_p1 10.0.0.1:80`. No path has a blank."""
    return f"{route_key(path)} {member}"


def membership_of(entry: str) -> tuple[str, str] | None:
    """The path and the member an entry of that form names; None where it has another."""
    key, _, member = entry.partition(" ")
    path = path_of(key) if key.startswith(MEMBERS) else None
    return (path, member) if path is not None and is_normal_member(member) else None


def field_entry(key: str, field: str) -> str:
    """How `slb:changes` names a field of a hash: `slb:route:/p1 retries`."""
    return f"{key} {field}"


def is_field(name: str) -> bool:
    """Whether a field of that name has an entry. Other names mean nothing to slb, and need not be one word."""
    return _FIELD.fullmatch(name) is not None


def key_of(entry: str) -> str:
    """The key that an entry of `slb:changes` is read from."""
    return entry.partition(" ")[0]


def whole_of(entry: str) -> str:
    """The entry whose number is one of this entry too: of a field the whole hash, else itself."""
    return entry if entry.startswith(MEMBERS) else key_of(entry)


def health_key(member: str, check: HealthCheck) -> str:
    """`slb:{health}:5s:2:3:2s:10.0.0.1:80/healthz`: routes whose checks are alike in all share one. A digest
    behind the timeout, `2s+0123456789abcdef`, stands for a body, a value and a POST. A version that does not have
    these settings shares the checks without them."""
    interval, timeout = duration(check.interval), duration(check.timeout)
    more = ""
    if (asked := (check.body, check.json, check.post)) != (None, None, None):
        more = "+" + hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
    return f"{HEALTH}{interval}:{check.rise}:{check.fall}:{timeout}{more}:{member}{check.path}"


POOL_KEYS = (
    *("inflight", "holders", "held:", "queue:tickets", "queue:class:", "queue:classes"),
    *("queue:views", "queue:grants", "queue:number", "reaped", "epoch", "live", "view:", "loads:"),
    *("queue:line:", "queue:lines:", "queue:heads:", "queue:granted", "queue:granted:", "dying", "round"),
)


def pool_keys(pool: str) -> list[str]:
    """The KEYS of the ledger's scripts: `/p1` -> `slb:{/p1}:inflight` and so on. Those that end in a colon are the
    beginnings of one key for each holder, class, view or line."""
    return [f"slb:{{{pool}}}:{name}" for name in POOL_KEYS]


_QUOTA_KEYS = (
    *("models", "limits", "state", "clock", "running:", "promises:", "minute:", "task:", "key:", "leases"),
    *("abandoned", "window:", "far:"),
)


def quota_keys() -> list[str]:
    """The KEYS of the quota router's script; those that end in a colon are the beginnings of one key each."""
    return [f"slb:{{quota}}:{name}" for name in _QUOTA_KEYS]


_JOB_KEYS = (
    *(
        "job:",
        "run:",
        "result:",
        "queue:",
        "classes",
        "number",
        "delayed",
        "holders",
        "held:",
        "dropped:",
        "running",
    ),
    *("deadlines", "ended", "dead", "callbacks", "counts", "batches", "watched", "looks", "buffered", "times"),
)


def job_keys(model: str) -> list[str]:
    """The KEYS of the jobs' script for one model; those that end in a colon are the beginnings of one key each."""
    return [f"slb:{{jobs:{model}}}:{name}" for name in _JOB_KEYS]


def path_of(key: str) -> str | None:
    """The route a `slb_...` or `slb:route:...` key belongs to; None where it is no path in normal form."""
    if len(key) > LONGEST:
        return None
    if key.startswith(MEMBERS):
        path = "/" + key[len(MEMBERS) :]
    elif key.startswith(SETTINGS):
        path = key[len(SETTINGS) :]
    else:
        return None
    return path if path == "/" or is_normal_path(path) else None


def member_of(key: str) -> str | None:
    """The upstream a `slb:upstream:...` key belongs to; None where it is no member in normal form."""
    if len(key) > LONGEST:
        return None
    member = key.removeprefix(UPSTREAM)
    return member if member != key and is_normal_member(member) else None


LONGEST_MEMBER = len("https://") + 253 + len(":65535")

LONGEST_ENTRY = LONGEST + LONGEST_MEMBER + 1
"""Characters of an entry of `slb:changes` or `slb:leases`."""


def is_normal_member(member: str) -> bool:
    """Whether `member`, or a name in DNS among members, is written just as `normal_target` would write it. A longer
    text is not looked at."""
    if len(member) > LONGEST_MEMBER:
        return False
    try:
        return normal_target(member) == member
    except InvalidName:
        return False


def channel_prefix(db: int) -> str:
    """What stands before the key in the name of a keyspace channel."""
    return f"__keyspace@{db}__:"


def channel_patterns(db: int) -> list[str]:
    """What the watcher subscribes to; an ACL must name these patterns to the letter."""
    return [channel_prefix(db) + start + "*" for start in (MEMBERS, SETTINGS, UPSTREAM, CANARY)]
