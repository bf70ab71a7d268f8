"""What a plan assumes of dialogues, stores and models.

How a dialogue goes is taken from the published release of 50 users.
"""

from __future__ import annotations

from memprobe.types import Role
from tasks.prompt_sizes import USER_TOKENS

TURNS = 2.45
"""Mean turns of an episode; 2.39 without memory, 2.49 with one."""
TURN_PAIRS = 2.4
"""Mean of T(T-1)/2 over episodes of T turns: how often an earlier turn is read again."""
EXTRACTED_EPISODE_TOKENS = 640
"""Growth of a store that keeps extracted facts: mem0's full dump over 31 episodes."""
EXTRACTED_ITEM_TOKENS = 60
RECOVERED = 0.4
"""Share of targets that every reader of a store gets right."""
INVITED = 0.95
"""Share of tasks that can bring their target up; the oracle refused 73 of 1,550."""
UNDISCLOSED = 0.5
"""Share of the invited, unrecovered targets that the user never let show."""
ANSWER_TOKENS = {
    Role.SIMULATOR: USER_TOKENS + 20,
    Role.PREFERENCE: 30,
    Role.SLOT_FILL: 60,
    Role.JUDGE: 35,
    Role.ORACLE: 35,
    Role.DISCLOSURE: 45,
    Role.SUBCLASS: 40,
}
"""Completion tokens; for preferences of each of them."""
READING_TOKENS = 15
"""What a part's label and reason take up in a merge beside themselves."""
LATENCY_S = 1.0
TOKENS_PER_S = 80.0
EMBEDDED_LATENCY_S = 0.003
MAX_CHAINS = 64
"""Stores that a process keeps open at the same time."""
