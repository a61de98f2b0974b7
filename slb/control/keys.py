"""Every key and channel in Redis: its type, its lifetime, its writers. Nothing else spells a key.

| key                    | type            | lifetime                    | written by                          |
|------------------------|-----------------|-----------------------------|-------------------------------------|
| `slb_<path>`           | set of members  | until it is empty           | registry, people, a restore         |
| `slb:route:<path>`     | hash            | until removed               | registry, a restore                 |
| `slb:upstream:<member>`| hash            | with the last route naming it | registry, a restore, orphan removal |
| `slb:instance:<id>`    | hash            | TTL 10 s                    | that instance's heartbeat           |
| `slb:identity:<id>`    | hash            | TTL 70 s                    | that instance's heartbeat           |
| `slb:instances`        | sorted set      | TTL 70 s                    | each heartbeat                      |
| `slb:generation`       | string          | for good                    | the first non-empty sync, `reset`   |
| `slb:changes`          | sorted set      | for good; 5,500 entries     | with each change of the above       |
| `slb:leases`           | sorted set      | while there is a lease      | registry, expiry of leases          |
| `slb:restoring`        | string          | TTL 5 s                     | the instance that writes back       |
| `slb:canary:<id>`      | string          | TTL 5 s                     | an instance testing notifications   |
| `slb:{health}:<check>` | string          | TTL 10 intervals, at least 1 min | the instance that runs the check |

`slb:changes` has a number for each entry that has changed, what left too: `<route's key> <member>`,
`<key of a hash> <field>`, or the key of a hash that was replaced or removed whole, which is a number of each of its
fields. `floor`: what does not stand there changed at this number, or before.

`slb:leases` has the registrations that end unless they are renewed, named as in `slb:changes`, each with that end
in milliseconds of a clock of the fleet's own, which stands there as `clock`: `lua/leases.lua`.

`slb:instances` has ids, each with the end of that instance's life as its score, in Redis milliseconds. For a minute
from then on it stays there, and `slb:identity:` has which process it was: slots may stand that it held.

Of each pool, `slb:{/<pool>}:` and then what follows, by the ledger's scripts only; all of it goes a minute after
the last holder's beat (a view is named by how many candidates it has and their digest; a line by its route, its
class and what its tickets avoid):

| key                    | type            | what                                                          |
|------------------------|-----------------|---------------------------------------------------------------|
| `inflight`             | sorted set      | member, score = requests in flight everywhere; absent = 0     |
| `held:<holder>`        | hash            | member = what this holder has of it; `seq` and the like: its batches |
| `holders`              | sorted set      | holder, score = the end of its lease in Redis milliseconds    |
| `queue:tickets`        | hash            | ticket = what it waits for                                    |
| `queue:class:<class>`  | sorted set      | ticket, score = its number                                    |
| `queue:classes`        | hash            | class = its pass in the fair order; a blank = the virtual time |
| `queue:views`          | hash            | `<holder> <route>` = the view of its tickets: candidates       |
| `queue:lines:<holder>` | hash            | its lines = the view under which each stands in `queue:heads:` |
| `queue:line:<holder> <line>` | sorted set | its tickets that can use the same: ticket, score = its number |
| `queue:heads:<view> <class>` | sorted set | `<holder> <line>`, score = the number of its first ticket     |
| `queue:grants`         | hash            | ticket = its grant, while its holder has no word of it        |
| `queue:granted`        | sorted set      | these tickets, score = when                                   |
| `queue:granted:<holder>` | sorted set    | those of one holder                                           |
| `queue:number`         | string          | the last ticket's number; every second is given out          |
| `live`                 | sorted set      | views in use, score = when one was last named                 |
| `view:<view>`          | hash            | member = its place, capacity and slots in this view           |
| `loads:<view>`         | sorted set      | members with room, score = requests in flight for each slot   |
| `places:<view>`        | sorted set      | members with room, score = their place                        |
| `dying`                | sorted set      | holders whose lease has ended, not yet taken apart            |
| `round`                | string          | how far the slices of the reaper have come                    |
| `reaped`               | string, TTL 1 s | an instance has just reaped (or mended: `reap.lua`)           |
| `epoch`                | string          | the server's run id and when this was written: another one is a loss |

Of the quota router, `slb:{quota}:` and then what follows, by `lua/quota.lua` only:

| key                    | type            | lifetime, and what                                            |
|------------------------|-----------------|---------------------------------------------------------------|
| `models`               | sorted set      | every model; a deleted one until nothing of it counts         |
| `limits`               | hash            | with the model: what is set on it                             |
| `state`                | hash            | with the model: its bucket, its deficit, what is promised     |
| `clock`                | hash            | for good: first and last call, and where the round stands     |
| `running:<model>`      | sorted set      | with its tasks: task, score = when it was admitted            |
| `promises:<model>`     | sorted set      | TTL: what callers wait for, score = until when   |
| `far:<model>`          | sorted set      | TTL: those that come back before that, score = when            |
| `minute:<model>`       | hash            | TTL 2 min: half second = tokens admitted in it                |
| `task:<task>`          | hash            | while its lease lasts, then TTL 1 h                           |
| `key:<key>`            | string          | a key's task while it runs; a key's promise: TTL              |
| `leases`               | sorted set      | with its tasks: task, score = when it lapses                  |
| `abandoned`            | sorted set      | an hour each: task, score = when it was reclaimed             |
| `window:<second>`      | hash            | TTL 2 min: what was decided in it                             |

Of each model's jobs, `slb:{jobs:<model>}:` and then what follows, by `lua/jobs.lua` only (what each is stands in
`lua/jobs_state.lua`):
`job:<id>`, `run:<id>`, `result:<id>`, `queue:<class>`, `classes`, `number`, `delayed`, `holders`, `held:<holder>`,
`dropped:<holder>`, `running`, `deadlines`, `ended`, `dead`, `callbacks`, `counts`, `batches`, `watched`, `times`.
Jobs that have not ended, and dead ones, live for good; those that have ended for the model's `result_ttl`, once
their callback is delivered or given up; `watched` for 20 s from each renewal on. `slb:jobs:models` is a hash, for
good: a model, and what is set on it, as JSON.

Channel `slb:health`: a health check's key and its new state, from the instance that ran it; a member that refuses
connections, or serves again, from the instance that met it.
Channel `slb:granted:<instance>`: a pool in which something has been granted to that instance.
Channel `slb:jobs:events`: what becomes of jobs, of models that some instance follows just now.
"""

import re

from slb.errors import InvalidName
from slb.model import HealthCheck
from slb.names import duration, is_normal_path, normal_member
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
JOB_MODELS = "slb:jobs:models"
JOBS_CHANNEL = "slb:jobs:events"

_FIELD = re.compile(r"[A-Za-z0-9_.-]{1,64}")

EVERY_INSTANCE = INSTANCE + "*"
"""The SCAN pattern of the instances' hashes."""

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


def instance_key(instance: str) -> str:
    """`<id>` -> `slb:instance:<id>`."""
    return INSTANCE + instance


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
    """`slb:{health}:5s:2:3:2s:10.0.0.1:80/healthz`: routes whose checks are alike in all share one."""
    interval, timeout = duration(check.interval), duration(check.timeout)
    return f"{HEALTH}{interval}:{check.rise}:{check.fall}:{timeout}:{member}{check.path}"


_POOL_KEYS = (
    *("inflight", "holders", "held:", "queue:tickets", "queue:class:", "queue:classes"),
    *("queue:views", "queue:grants", "queue:number", "reaped", "epoch", "live", "view:", "loads:", "places:"),
    *("queue:line:", "queue:lines:", "queue:heads:", "queue:granted", "queue:granted:", "dying", "round"),
)


def pool_keys(pool: str) -> list[str]:
    """The KEYS of the ledger's scripts: `/p1` -> `slb:{/p1}:inflight` and so on. Those that end in a colon are the
    beginnings of one key for each holder, class, view or line."""
    return [f"slb:{{{pool}}}:{name}" for name in _POOL_KEYS]


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
    *("deadlines", "ended", "dead", "callbacks", "counts", "batches", "watched", "times"),
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


def instance_of(key: str) -> str | None:
    """The instance a `slb:instance:...` key belongs to; None where it can be none."""
    return key.removeprefix(INSTANCE) if len(key) <= LONGEST else None


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
    """Whether `member` is written just as `normal_member` would write it. A longer text is not looked at."""
    if len(member) > LONGEST_MEMBER:
        return False
    try:
        return normal_member(member) == member
    except InvalidName:
        return False


def channel_prefix(db: int) -> str:
    """What stands before the key in the name of a keyspace channel."""
    return f"__keyspace@{db}__:"


def channel_patterns(db: int) -> list[str]:
    """What the watcher subscribes to; an ACL must name these patterns to the letter."""
    return [channel_prefix(db) + start + "*" for start in (MEMBERS, SETTINGS, UPSTREAM, CANARY)]
