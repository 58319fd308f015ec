"""English words with a special role in the comparison of words. Each list explains its role."""

# Words that negate an answer or combine several answers. They must be the same in the answer and in the reference.
TURN_WORDS = """
and but either except false instead maybe neither never no none nor not or perhaps rather than true unlike without
"""
TURNS = frozenset(TURN_WORDS.split())
# Words without content: an answer may have them in addition to the reference's words.
FILLER_WORDS = """
about according actually all also am answer answers approximately are around as at be been believe by called circa
correct did do does exactly final for found from had has have he her his i in is it its known m name named namely of
on s said says section she so stands states that their there they think this to total was well were which who with
"""
FILLERS = frozenset(FILLER_WORDS.split())
# Fillers for persons, places or directions. An answer may add or omit such a word, but not replace it ("from" for
# "to").
RELATION_WORDS = "as at by for from he her his in its of on she their they to with"
RELATIONS = frozenset(RELATION_WORDS.split())
# Words that change the words after them, even if they are in the question.
MODIFIER_WORDS = """
above acting after against almost anti before below beside between beyond deputy double down except former half inside
late least less minus more most near nearly negative non opposite outside over past post pre quarter since third twice
under until up vice
"""
MODIFIERS = frozenset(MODIFIER_WORDS.split())
# Words that change the number before them.
OF_NUMBER_WORDS = "ad am bc bce billion ce dozen hundred million pm thousand trillion"
OF_NUMBERS = frozenset(OF_NUMBER_WORDS.split())
# A month may precede or follow its day.
MONTH_WORDS = "january february march april may june july august september october november december"
MONTHS = frozenset([*MONTH_WORDS.split(), *(month[:3] for month in MONTH_WORDS.split())])
# Kinds and qualities of named things. Many things share such a word, so the word alone does not identify a thing. A
# kind may be omitted from a long name ("Lamar Hunt Trophy"), but a quality may not ("New York").
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
