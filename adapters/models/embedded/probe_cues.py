"""What ordinary English says of a statement: whose it is, how firm, and whether it still holds.

Each cue is a pattern over one sentence (or over the whole turn). The lists are common
verbs, kinship and work relations and words of doubt; none holds a value or a name.
"""

from __future__ import annotations

import re
from functools import lru_cache

_I = re.IGNORECASE

RELATION = (
    r"(?:(?:step|grand|god|great-)?(?:mother|father|mum|mom|dad|son|daughter|child|parents?)"
    r"(?:-in-law)?|sister|brother|aunt|uncle|cousin|niece|nephew|wife|husband|partner|girlfriend"
    r"|boyfriend|in-laws|flatmate|roommate|housemate|neighbou?rs?|friends?|mates?|pal|buddy"
    r"|colleagues?|co-?workers?|teammates?|boss|manager|supervisor|intern|trainee|contractor"
    r"|freelancer|consultant|recruiter|vendor|salesman|salesperson|driver|courier|customers?"
    r"|clients?|landlord|landlady|tutor|teacher|coach|trainer|hairdresser|barber|doctor|nurse"
    r"|guest|stranger|acquaintance|classmate|kids?|guy|bloke|lad|man|woman|lady|fellow|chap"
    r"|somebody|someone|people|folks|ex)"
)
_FIRST = re.compile(
    r"\b(?:I|I['’](?:m|ve|ll|d)|i['’]?(?:m|ve|ll|d)|i|me|my|mine|myself|we|we['’](?:re|ve|ll|d)|us"
    r"|our|ours|ourselves)\b",
    _I,
)
_MY_RELATION = re.compile(rf"\b(?:my|our)\s+(?:\w+\s+){{0,2}}?{RELATION}\b(?:['’]s)?", _I)
_USER_SUBJECT = re.compile(r"\b(?:the\s+)?user(?:['’]s)?\b", _I)

PATTERNS: dict[str, re.Pattern[str]] = {
    "third": re.compile(
        rf"\b{RELATION}\b|\b(?:he|she|him|his|hers?|he['’]s|she['’]s|he['’]d|she['’]d)\b", _I
    ),
    "they": re.compile(
        r"\b(?:they|them|their|theirs|they['’](?:re|ve|d|ll))\b"
        r"|\b(?:other|another|different|neighbou?ring|sister|partner)\s"
        r"(?:team|firm|company|project|group|department|office|service|club|class|shop|school)\b"
        r"|\b(?:not for me|not mine|not ours|not us|on behalf of)\b",
        _I,
    ),
    "owner": re.compile(r"\b(?!Let['’])[A-Z][a-z]+(?:['’]s|s['’])\s"),
    "hearsay": re.compile(
        r"\b(?:heard|hears|hear that|overheard|reckon(?:s|ed)?|rumou?rs?|gossip|apparently"
        r"|supposedly|allegedly|claim(?:s|ed)?|swears? (?:by|it)|suggest(?:s|ed|ion)?"
        r"|propos(?:es|ed|al)|recommend(?:s|ed)?|guess(?:ed|es)?|told me|telling me|tells me"
        r"|said|says|saying|tipped|hinted|mention(?:s|ed)?|idea|thinks|thought|convinced"
        r"|going on about|went on about|word is|talk of|ought to|second-hand|probably|perhaps"
        r"|maybe|somewhere)\b",
        _I,
    ),
    "hypothetical": re.compile(
        r"\b(?:if|might|may be|could|would|should|whether|what if|suppose|imagine|considering"
        r"|considered|tempt(?:ed|ing)|toy(?:ed|ing)|wonder(?:ed|ing)?|thinking (?:of|about)"
        r"|look(?:ed|ing)? (?:at|into)|tried|trial|compare[ds]?|comparing|versus|vs|worth"
        r"|instead\?|possible|option|almost|nearly|wobble|one day|someday|used to)\b"
        r"|['’]d\b",
        _I,
    ),
    "negated": re.compile(
        r"\b(?:not|never|no|nothing|nobody|none|cannot|neither|nor|without|isn['’]?t|wasn['’]?t"
        r"|don['’]?t|doesn['’]?t|didn['’]?t|won['’]?t|can['’]?t|aren['’]?t|hasn['’]?t|haven['’]?t"
        r"|wouldn['’]?t|couldn['’]?t|shouldn['’]?t)\b",
        _I,
    ),
    "stale": re.compile(
        r"\b(?:old|older|outdated|out of date|out-of-date|stale|ancient|archived?|archiving"
        r"|deprecated|obsolete|legacy|former(?:ly)?|previous(?:ly)?|earlier|cached|snapshot|expired"
        r"|no longer|any ?more|years ago|months ago|back then|last (?:year|summer|winter|autumn"
        r"|spring)|history|leftover|dated|backup|export|(?:from|in|since) (?:19|20)\d\d|used to"
        r"|was (?:still )?(?:on|at|in|with|using))\b|\b(?:19|20)\d\d-\d\d-\d\d\b",
        _I,
    ),
    "wrong": re.compile(
        r"\b(?:wrong|incorrect|mistaken?|mistakes?|error|slip|untrue|nonsense|not (?:true|right|so"
        r"|ours|mine|sure where|our|my|what|correct)|can['’]?t be right|isn['’]?t (?:our|my|right"
        r"|so|true|correct)|where did you (?:get|take)|where you got|made (?:it|that) up"
        r"|never said|looks? (?:wrong|off|odd)"
        r"|doesn['’]?t (?:look|sound) right|misread|ignore (?:it"
        r"|that)|strike (?:it|that))\b",
        _I,
    ),
    "settled": re.compile(
        r"\b(?:decided|agreed|settled|final|official(?:ly)?|confirmed|signed(?: up| off)?|booked"
        r"|paid|registered|enrolled|joined|merged|deployed|live|done|moved in|rolled out"
        r"|as of|from now on|since (?:yesterday|last|this|monday|tuesday|wednesday|thursday|friday)"
        r"|for good|upshot|starting|effective|took over|has taken over|taken on|in force"
        r"|went live|gone live|switched off|handed over|files? (?:handed|transferred))\b",
        _I,
    ),
    "change": re.compile(
        r"\b(?:switch(?:ed|ing)?|mov(?:ed|ing)|chang(?:ed|ing)|migrat(?:ed|ing)|swapp(?:ed|ing)"
        r"|transferr(?:ed|ing)|updat(?:ed|ing)|replac(?:ed|ing|es)|went over|gone over|gone to"
        r"|gone with|going with|went with|picked|chose|chosen|settled on|took up|taken up"
        r"|converted|promoted|cut over|instead of|in place of|rather than|no longer|new)\b",
        _I,
    ),
    "now": re.compile(
        r"\b(?:now|these days|currently|nowadays|at present|today|from now on|at the moment"
        r"|as of|since|from (?:today|monday|tuesday|wednesday|thursday|friday|next))\b",
        _I,
    ),
    "stay": re.compile(
        r"\b(?:stay(?:s|ed|ing)?|stick(?:s|ing)?|stuck|stopping at|keep(?:s|ing)?|kept|remain(?:s"
        r"|ed|ing)?|still|as (?:ever|usual|always|before|it was)|same as|carry(?:ing)? on"
        r"|carried on|unchanged|leav(?:e|ing) it|loyal|put|content|happy (?:with|at)"
        r"|not (?:changing|switching|moving)|won['’]t (?:change|switch|rebook|move))\b",
        _I,
    ),
    "habit": re.compile(
        r"\b(?:always|every|usual(?:ly)?|each|regular(?:ly)?|weekly|daily|monthly|as ever|as usual"
        r"|own)\b",
        _I,
    ),
    "question": re.compile(r"\?[\"'”’)]*\s*$"),
}
CUES = tuple(PATTERNS)

_REFUSED = re.compile(
    r"\b(?:no|nope|nah|not|never|didn['’]?t|don['’]?t|wouldn['’]?t|won['’]?t|isn['’]?t|wasn['’]?t"
    r"|shrugged|smiled|laughed|nodded|ignored?|changed the subject|pass(?:ed)? on (?:it|that)"
    r"|said no|told (?:him|her|them) no|left it|let it|wrong|guess|nonsense|rubbish|gossip|talk"
    r"|nothing|nobody|as (?:usual|ever|always|before|it was)|same as|carry(?:ing)? on|stay"
    r"(?:s|ed|ing)?|stick(?:ing)?|still|keep(?:ing)?)\b",
    _I,
)


@lru_cache(maxsize=65_536)
def first_person(text: str) -> bool:
    """Whether a text speaks of its speaker's own affairs; "my sister" alone does not."""
    return bool(_FIRST.search(_MY_RELATION.sub(" ", text)))


@lru_cache(maxsize=65_536)
def of_the_user(text: str) -> bool:
    """Whether a fact without a speaker is about the user."""
    return bool(_USER_SUBJECT.search(text))


@lru_cache(maxsize=65_536)
def cues(text: str) -> frozenset[str]:
    """The cues a text shows, by name."""
    return frozenset(name for name, pattern in PATTERNS.items() if pattern.search(text))


@lru_cache(maxsize=65_536)
def refused(text: str) -> int:
    """How many marks of refusal a text holds, up to 3."""
    return min(3, len(_REFUSED.findall(text)))


INTO = re.compile(
    r"\b(?:to|on|onto|with|at|in|is|are|be|use|uses|using|called|named|by|via|into|now|over to"
    r"|learning|becomes|became|=|:)\s+(?:the\s+|a\s+|an\s+|our\s+|my\s+)?[\"'“‘`]?$",
    _I,
)
"""What stands right before a value that is stated."""
OUT_OF = re.compile(
    r"\b(?:from|instead of|rather than|not|no longer|off|than|replaces|replaced|replacing|old|under"
    r"|left|leaving|after|without)\s+(?:the\s+|a\s+|an\s+|our\s+|my\s+)?[\"'“‘`]?$",
    _I,
)
"""What stands right before a value that is given up or ruled out."""
AFTER_OLD = re.compile(
    r"^[\"'”’`]?\s*(?:is|was|has been|are|were|will be)?\s*(?:gone|off|out|over|switched off"
    r"|closed|shut|history|packed away|cancelled|days? (?:are|is) numbered|retired|finished)\b",
    _I,
)
"""What stands right behind a value that has come to its end."""
NAMED_SUBJECT = re.compile(
    r"(?:^|[.,;:!?(\"“]\s*|\b(?:and|but|that|so|as|because)\s+)(?!I\b|We\b|It\b|This\b|That\b)"
    r"[A-Z][a-z]+(?:\s[A-Z][a-z]+)?\s(?:has|had|is|was|will|wants?|\w{2,}ed|went|got|took|put"
    r"|\w{2,}(?<!s)s)\s"
)
"""Somebody with a name who does something, before a value in the same sentence."""
SWITCH_TO = re.compile(
    r"\b(?:switch|mov|chang|migrat|convert|swapp?|transferr?|upgrad|settl|decid|went|gone|going|go"
    r"|signed|sign|opt|join|chos|pick|replac|tak|took)(?:e|ed|ing|en)?\s+(?:\w+\s+){0,3}?"
    r"(?:to|with|on|for|up|it with|by)?\s*(?:the\s+|an?\s+)?(?:(?:Dr|Mr|Mrs|Ms|St)\.?\s)?"
    r"[\"'“‘`]?$",
    _I,
)
"""The user's own change to what follows: "I've switched to", "we settled on"."""
