"""A process takes the listening sockets of the one that runs, without a moment in which nobody accepts.

    new                                        old
    ---                                        ---
    connects to data_dir/takeover-*.sock  -->  who I am, where I listen
    `take` some of it                     -->  the sockets (SCM_RIGHTS); both may accept from now on
    loads its table, begins to accept
    `ready`                               -->  accepts no more
    serves alone                          <--  `left`; drains, and ends

Whoever ends before `ready` changes nothing for the other: the kernel closes its end of the connection, and the
sockets stay open in the other process. What a stranger could say is not heard: both ends look whose process is at
the other one, and read lines of a bounded length."""

from slb.takeover.claim import Claim
from slb.takeover.messages import StoppedEarly, TakeoverRefused
from slb.takeover.offer import Offer
from slb.takeover.opening import open_sockets
from slb.takeover.predecessor import Predecessor
from slb.takeover.successor import start_at_signal

__all__ = ["Claim", "Offer", "Predecessor", "StoppedEarly", "TakeoverRefused", "open_sockets", "start_at_signal"]
