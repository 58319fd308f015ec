"""The English words that the comparison of words treats otherwise than names: each list says why."""

# Words that negate an answer, or make several of it. Two texts that say the same have the same of these.
TURN_WORDS = """
and but either except false instead maybe neither never no none nor not or perhaps rather than true unlike without
"""
TURNS = frozenset(TURN_WORDS.split())
# Words without a content of their own: an answer may have them beside the reference's.
FILLER_WORDS = """
about according actually all also am answer answers approximately are around as at be been believe by called circa
correct did do does exactly final for found from had has have he her his i in is it its known m name named namely of
on s said says section she so stands states that their there they think this to total was well were which who with
"""
FILLERS = frozenset(FILLER_WORDS.split())
# Fillers that say who, where or which way: one may be added or left off, but not stand for another ("from" for "to").
RELATION_WORDS = "as at by for from he her his in its of on she their they to with"
RELATIONS = frozenset(RELATION_WORDS.split())
# Words that change what they stand before, even if the question has said them.
MODIFIER_WORDS = """
above acting after against almost anti before below beside between beyond deputy double down except former half inside
late least less minus more most near nearly negative non opposite outside over past post pre quarter since third twice
under until up vice
"""
MODIFIERS = frozenset(MODIFIER_WORDS.split())
# Words that change the number that they stand behind.
OF_NUMBER_WORDS = "ad am bc bce billion ce dozen hundred million pm thousand trillion"
OF_NUMBERS = frozenset(OF_NUMBER_WORDS.split())
MONTH_WORDS = "january february march april may june july august september october november december"
MONTHS = frozenset(
    [*MONTH_WORDS.split(), *(month[:3] for month in MONTH_WORDS.split())]
)  # written before or after a day
# What things with a name are, and how they are told apart from others of that name. Many bear the same, so alone
# neither says which is meant. A kind may be left off a long name ("Lamar Hunt Trophy"), a quality not ("New York").
KIND_WORDS = """
academy act army association award bank battle bay bridge castle church city club college committee company council
county court cup day department district dynasty emperor empire field film forest gate general government group gulf
hall hill house institute institution island islands king kingdom lake language law league library lord mount mountain
mountains movement museum ocean office opera order organisation organization palace park party people pope president
prince princess prize province queen railway republic revolution river road saint school sea service sir society square
st state states station street system team temple theatre tower town treaty trophy tunnel union university valley war
works world
"""
KINDS = frozenset(KIND_WORDS.split())
QUALITY_WORDS = """
american ancient black british central east eastern english european first french german golden grand great greater high
holy imperial international little lower middle national new north northern old red royal second south southern supreme
third united upper west western white
"""
COMMON = KINDS | frozenset(QUALITY_WORDS.split())
