"""English words too common to give a target away."""

STOP_WORDS = """
a about above across after afterwards again against ago ahead all almost along already also
although always am among an and another any anybody anyone anything anyway anywhere apart are
aren't around as ask asked asking at away back be became because become been before began begin
behind being below beside besides best better between big bit both bring but by call came can
can't cannot case come comes coming could couldn't couple day days did didn't different do does
doesn't doing don't done down during each early either else end enough even ever every
everybody everyone everything few find first five for found four from front full further gave
get gets getting give given gives giving go goes going gone good got great had hadn't half
hardly has hasn't have haven't having he he'd he'll he's help her here here's hers herself high
him himself his hour hours how however i i'd i'll i'm i've if in inside instead into is isn't
it it'd it'll it's its itself just keep keeps kept kind knew know known knows large last late
later least less let let's like likely little long look looking looks lot made make makes
making many may maybe me mean means might mine minute minutes month months more morning most
much must my myself near need needed needs never new next night no nobody none nor not nothing
now nowhere of off often old on once one ones only onto or other others our ours ourselves out
over own part people perhaps person place plan please point put puts quite rather really right
said same saw say says second see seen sees set sets seven several shall she she'd she'll she's
should shouldn't show side since six small so some somebody somehow someone something sometimes
somewhere soon sort start started starts still such sure take taken takes taking tell ten than
thank thanks that that's the their theirs them themselves then there there's these they they'd
they'll they're they've thing things think third this those though thought three through time
times to today together told tomorrow too took toward towards try trying turn two under until
up upon us use used uses using usually very want wanted wants was wasn't way ways we we'd we'll
we're we've week weeks well went were weren't what what's whatever when where where's whether
which while who who's whoever whole whom whose why will with within without won't work worked
working works would wouldn't year years yes yesterday yet you you'd you'll you're you've your
yours yourself yourselves zero
"""
