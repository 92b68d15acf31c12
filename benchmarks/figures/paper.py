"""What the ZEN paper (OSDI '25) says, as far as its text gives numbers, and why ours may differ."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Claim:
    what: str
    where: str
    paper: str
    why: str  # ours may differ


DENSITY = Claim(
    "density of one rank",
    "figure 8",
    "NMT 2.5% (deduced: AGsparse meets all-reduce at 40 GPUs)",
    "smaller vocabularies and smaller batches than the paper's about cancel out",
)
OVERLAP = Claim(
    "overlap of two ranks",
    "figure 2a",
    "about normal, over a wide range, different for each model, far above 0.05",
    "our batches are all of one size and shuffled from one text, which leaves little to vary; "
    "synthetic clicks are drawn alike for all ranks, which leaves next to nothing",
)
DENSIFICATION = Claim(
    "densification",
    "figure 2b, section 3.3.1",
    "grows with n and stays below n; NMT 24.6 at 128 (deduced from figure 8), BERT 38 at 128",
    "the same, in size too: words and values follow Zipf's law in both",
)
FIRST_PART = Claim(
    "share of the non-zeros in the first of eight parts",
    "figure 3a",
    "above 60% for all six models",
    "the same where words are numbered by frequency; our DeepFM's table is 26 fields after each "
    "other, each with its popular values first, so that no part has most of them",
)
SKEWNESS = Claim(
    "skewness at 128 parts",
    "figure 3b",
    "above 70 for the LSTM's embedding",
    "a 128th of the paper's table is about 3,100 words, of ours 250: as popular as they are, they "
    "are a smaller share of a batch's words; negatives, drawn by a flatter law, reach further",
)
