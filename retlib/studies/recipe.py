"""What chapters share, so that one finds what another has trained: encoder, pre-training, generator, training.

A chapter of Parts II to V has a recipe of one of these kinds. Its parameter `recipe` changes single values of it, as in
``{"layers": 2}``; the profiles in ``notebooks/profiles`` do the same. Defaults are those of the profile "quick", but
for what a notebook sets itself.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from retlib.core.errors import require_one_of
from retlib.data.articles import Articles
from retlib.data.collection import Collection
from retlib.models.generator import HEADS, GeneratorArchitecture, Nucleus
from retlib.models.retriever import Architecture
from retlib.studies.experiment import ArticlesName, CollectionName, Positive, Rate, Settings, TwoOrMore, validator
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.system import Stage, System
from retlib.systems.training_data import Labels, MaskedTokens, Pretraining
from retlib.training import losses
from retlib.training.trainer import OPTIMIZERS, Schedule

TASKS = ("ict", "bfs", "wlp")
Dropout = Annotated[float, Field(ge=0, lt=1)]  # share of a text's tokens that trainings leave out
# By a share of the labels; where collections differ, by these, too: {"0.05": 60, "0.8": {"squad": 800}}.
Steps = dict[str, Positive | dict[CollectionName, Positive]]


def _listwise(name: str) -> None:
    several = [each for each in losses.names() if not losses.get(each).one_positive]
    require_one_of("a loss of lists that LTRe retrieves", name, several)


class Recipe(Settings):
    """An encoder whose embeddings the tasks of Chang 2020 pre-train.

    >>> Recipe(width=64).architecture(layers=1).width
    64
    """

    articles: ArticlesName = "pydocs"  # pages to pre-train on
    vocabulary: Annotated[int, Field(ge=100)] = 8000  # tokens of the WordPiece vocabulary
    layers: Annotated[int, Field(ge=0)] = 0  # of a Transformer, over its embeddings; 0 for none
    width: Annotated[int, Field(ge=64, multiple_of=64)] = 128  # a head has 64
    dimension: Positive = 192
    query_length: Positive = 24
    document_length: Positive = 48
    pretraining_steps: Positive = 150  # by ICT, BFS and WLP
    pretraining_batch: TwoOrMore = 256
    pretraining_rate: Rate = 0.003

    @property
    def pages(self) -> Articles:
        return Articles(self.articles, self.vocabulary)

    def architecture(self, **changes: Any) -> Architecture:
        sizes = self.model_dump(include={"layers", "width", "dimension", "query_length", "document_length", "towers"})
        return Architecture(**{"similarity": "cosine", **sizes, **changes})

    def schedule(self, prefix: str = "") -> dict[str, Any]:
        """Return steps or epochs, batch and rate of a kind of training, as far as there are such with this prefix."""
        names = {"steps": "steps", "epochs": "epochs", "batch": "batch_size", "rate": "learning_rate"}
        return {name: getattr(self, prefix + each) for each, name in names.items() if hasattr(self, prefix + each)}

    def pretraining(self, *tasks: str, **changes: Any) -> Stage:
        """Return the pre-training by all three tasks or by some, with changes to it."""
        data = Pretraining(tasks or TASKS, self.pages, keep=0.1)
        return Stage(**{"data": data, **self.schedule("pretraining_"), **changes})

    def pretrained(self, *tasks: str, **changes: Any) -> System:
        """Return an encoder with changes to it, and its pre-training by these tasks, of layers too if it has some."""
        return System(self.architecture(**changes), self.pages) + self.pretraining(*tasks)


class Finetuning(Recipe):
    """Training of embeddings on shares of the labels (chapter 24)."""

    layers: Positive = 1
    towers: Literal["siamese", "two"] = "siamese"
    finetuning_steps: Steps = {"0.01": 10, "0.05": 20, "0.1": 30, "0.8": 100}
    finetuning_batch: TwoOrMore = 256
    finetuning_rate: Rate = 0.003
    token_dropout: Dropout = 0.3  # of a Transformer, on labels
    # Whether pre-training of embeddings alone goes on beside the labels, with as many pairs in each batch.
    rehearsal: bool = False

    def on_share(self, start: System, share: float, collection: str = "") -> Stage:
        """Return the training of a start on a share of a collection's labels; one with layers has steps of its own."""
        is_transformer = start.architecture.encoder == "transformer"
        kind = "layered" if has_layers(start) else "finetuning"
        steps = getattr(self, f"{kind}_steps")
        require_one_of(f"a share of {kind}_steps", f"{share:g}", steps)
        if isinstance(steps := steps[f"{share:g}"], dict):
            require_one_of(f"a collection of {kind}_steps[{share:g}]", collection, steps)
            steps = steps[collection]
        earlier = [data for stage in start.stages for data in stage.data if isinstance(data, Pretraining)]
        rehearsed = earlier[-1:] if self.rehearsal and is_transformer and kind == "finetuning" else []
        dropout = self.token_dropout if is_transformer else 0.0
        return Stage(data=[Labels(), *rehearsed], token_dropout=dropout, **self.schedule(f"{kind}_") | {"steps": steps})


class LabelShares(Finetuning):
    """Such training with layers, too, and pre-training of these (chapters 22 and 23)."""

    grown_steps: Positive = 12  # of pre-training with layers
    grown_batch: TwoOrMore = 64  # of it, and of MLM
    grown_rate: Rate = 0.0003
    mlm_steps: Positive = 25  # each many times as slow as one of the embeddings
    mlm_rate: Rate = 0.001  # at a higher one the states collapse
    layered_steps: Steps = {"0.01": 5, "0.05": 8, "0.1": 10, "0.8": 20}  # on labels, with layers
    layered_batch: TwoOrMore = 64
    layered_rate: Rate = 0.001

    def grown(self, *tasks: str, layers: int | None = None) -> Stage:
        """Return further pre-training by the same tasks, with layers on the embeddings."""
        return self.pretraining(*tasks, layers=self.layers if layers is None else layers, **self.schedule("grown_"))

    def masked(self) -> Stage:
        return Stage(data=MaskedTokens(self.pages), batch_size=self.grown_batch, **self.schedule("mlm_"))


def has_layers(start: System) -> bool:
    """Return whether a system is a Transformer with layers, its own or those that a stage puts on it."""
    layers = [start.architecture.layers, *(stage.layers or 0 for stage in start.stages)]
    return start.architecture.encoder == "transformer" and max(layers) > 0


class Generation(Recipe):
    """A generator of queries, which begins with a retriever's embeddings, and what trains on them (Part III)."""

    generator_head: Literal[tuple(HEADS)] = "pointer"  # or "bart", without a copy mechanism
    generator_checkpoint: str = ""  # or a folder or hub name of a BART, whose head is "bart"
    generator_layers: Positive = 2
    generator_embedded: bool = True  # whether it begins with the retriever's embeddings, else with random ones
    generator_epochs: Annotated[float, Field(ge=0.01)] = 0.3  # over the labelled pairs
    generator_batch: TwoOrMore = 32
    generator_rate: Rate = 0.001
    passage_length: Positive = 48  # tokens that the generator reads
    samples: Positive = 4  # queries of a passage that are drawn; the likeliest are kept
    kept: Positive = 2
    steps: Positive = 40  # of a retriever's first training
    batch: TwoOrMore = 128
    rate: Rate = 0.0003
    token_dropout: Dropout = 0.3

    def generator(self, labels: Collection | None = None) -> QueryGenerator:
        """Return the generator, which learns from labels."""
        sizes = self.generator_layers, self.width, self.passage_length, self.query_length
        architecture = GeneratorArchitecture(self.generator_head, *sizes, self.generator_checkpoint)
        schedule, decoding = Schedule(**self.schedule("generator_")), Nucleus(samples=self.samples, keep=self.kept)
        start = self.pretrained() if self.generator_embedded and not self.generator_checkpoint else None
        return QueryGenerator(architecture, self.pages, schedule, decoding, labels, start)

    @property
    def first_training(self) -> dict[str, Any]:
        return {**self.schedule(), "token_dropout": self.token_dropout}


class ScheduleChanges(Settings):
    """What trainings on labels have else than others; see `retlib.training.trainer.Schedule`."""

    epochs: Annotated[float, Field(ge=0)] | None = None
    steps: Annotated[int, Field(ge=0)] | None = None
    batch_size: TwoOrMore | None = None
    learning_rate: Rate | None = None


class Adaptation(Generation):
    """Trainings on labels, and such that follow others (chapters 32 and 33)."""

    later_steps: Positive = 30
    # As in {"epochs": 10, "steps": 0, "batch_size": 400}. By a factory, or its reference page cannot import it.
    finetuning: ScheduleChanges = Field(default_factory=ScheduleChanges)

    @property
    def label_training(self) -> dict[str, Any]:
        return self.first_training | self.finetuning.model_dump(exclude_none=True)

    @property
    def later_training(self) -> dict[str, Any]:
        """How a training after another goes; where `finetuning` gives a length, that is its length, too."""
        return {**self.first_training, "steps": self.later_steps, **self.finetuning.model_dump(exclude_none=True)}


class Rankings(Recipe):
    """Training by ranking documents: questions with negatives of their own (Part IV and chapter 51)."""

    batch: TwoOrMore = 64  # questions of a step
    token_dropout: Dropout = 0.3
    optimizer: Literal[tuple(OPTIMIZERS)] = "adamw"
    negatives: Positive = 1  # of a question
    interval: Positive = 24  # steps between two refreshes of asynchronous lists
    query_steps: Positive = 100  # of a training of the query encoder alone
    retrieved: TwoOrMore = 50  # documents that LTRe retrieves for a question
    query_loss: Annotated[str, validator(_listwise)] = "lambdarank-mrr"
    reader_steps: Positive = 15
    reader_batch: Positive = 16  # questions of a step
    reader_rate: Rate = 0.001
    reader_negatives: Positive = 7  # of a question, from BM25's first fifty

    def labels(self, **changes: Any) -> Stage:
        how = {"batch_size": self.batch, "optimizer": self.optimizer, "token_dropout": self.token_dropout}
        return Stage(**{"data": Labels(), **how, "keep": "last", **changes})

    def ltre(self, **changes: Any) -> Stage:
        """Return a training of the query encoder on what it retrieves itself (Zhan 2020, section 4)."""
        how = {"negatives": "retrieved", "options": {"n": self.retrieved}, "loss": self.query_loss, "trains": "query"}
        return self.labels(**{**how, **self.schedule("query_"), **changes})

    def reading(self, **changes: Any) -> Stage:
        options = {"n": self.reader_negatives, "depth": 50}
        how = {"data": Labels(), "negatives": "bm25", "options": options, **self.schedule("reader_")}
        return Stage(**{**how, **changes})


class Ranking(Rankings):
    """Such training from pre-trained embeddings or a public encoder (Part IV)."""

    checkpoint: str = ""  # or a public sentence encoder to start from: a folder, an installed package or a hub name
    # Encoders, or "query": that of questions alone, over documents as the start has them; LTRe always does.
    trains: Literal["both", "query"] = "both"
    steps: Positive = 60  # of a training on other negatives than LTRe's
    rate: Rate = 0.0003
    query_rate: Rate = 0.0001
    ann_rate: Rate = 0.001  # of ANCE
    warm_steps: Positive = 200
    warm_batch: TwoOrMore = 256
    warm_rate: Rate = 0.0003

    def start(self, live: bool = True) -> System:
        """Return what trainings on labels start from; a page of recorded rows needs no checkpoint."""
        if self.checkpoint and live:
            lengths = {"query_length": self.query_length, "document_length": self.document_length}
            return System(Architecture.of_checkpoint(self.checkpoint, **lengths))
        return System(self.architecture(layers=0)) if self.checkpoint else self.pretrained(layers=0)

    def ranked(self, negatives: str, **changes: Any) -> Stage:
        """Return a training of both encoders by RankNet, which puts the layers on if it is the first."""
        layers = None if self.checkpoint or self.trains == "query" else self.layers
        how = {"negatives": negatives, "loss": "ranknet", "trains": self.trains, "layers": layers, **self.schedule()}
        return self.labels(**{**how, **changes})

    def in_batch(self, **changes: Any) -> Stage:
        """Return the first training, which puts the layers on."""
        return self.labels(**{"layers": self.layers, **self.schedule("warm_"), **changes})

    def warm(self, start: System) -> System:
        """Return the start with its first training; a public encoder has had one."""
        return start if self.checkpoint else start + self.in_batch()


class Leaderboard(Generation, Rankings):
    """Every method of the book (chapter 51)."""

    reader_layers: Positive = 1  # put on the retriever's
    read: Positive = 10  # results that it reads
    ranked_steps: Positive = 20  # of each of LTRe's rivals, which train both sides
    interval: Positive = 10
    query_steps: Positive = 40
    words_epochs: Positive = 6  # of bag-of-words encoders
    words_batch: TwoOrMore = 250
