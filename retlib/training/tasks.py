"""What the loop trains, in all chapters that train: a module, a batch for every step, and the loss of a batch."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from retlib.core.errors import require
from retlib.core.runtime import Clock
from retlib.data.text import TokenTable
from retlib.data.tokenized import Pairs, PairSource
from retlib.models.encoders import DualEncoder
from retlib.training import losses
from retlib.training.negatives import Batch, DeferredBatch, Sampler, only_hardest
from retlib.training.pretraining import Masked, MaskedPassages


class Task:
    """What the loop trains: a module, the `batch` of a step, which depends on the step alone, and a batch's `loss`."""

    module: nn.Module
    pairs = 1  # that an epoch passes over: pairs, queries or passages

    @cached_property
    def clock(self) -> Clock:
        """Seconds of the parts of training that the task tells apart."""
        return Clock()

    def backward(self, batch: Any, autocast: Callable[[], AbstractContextManager]) -> float:
        """Add the gradient of a batch's loss to the parameters; return the loss."""
        with self.clock("loss and backward"):
            with autocast():
                loss = self.loss(batch)
            loss.backward()
            return loss.item()

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold beside the module, for `set_state`."""
        return {}

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what `state` gave."""


@dataclass(eq=False)
class RetrievalTask(Task):
    """A dual encoder, its negatives and its loss, one of `retlib.training.losses.names()`.

    With `chunk`, so many texts are encoded at a time, and no more than their activations are kept, for one forward pass
    more (gradient checkpointing, Chen et al. 2016). The gradients are those of the whole batch.
    """

    module: DualEncoder
    negatives: Sampler
    loss_name: str
    chunk: int | None = None

    @cached_property
    def clock(self) -> Clock:
        return self.negatives.clock

    @property
    def pairs(self) -> int:
        return len(self.negatives.source)

    def batch(self, step: int) -> Batch | DeferredBatch:
        return self.negatives.batch(step)

    def loss(self, batch: Batch | DeferredBatch) -> Tensor:
        loss = losses.get(self.loss_name)
        batch, queries, documents = self._encodings(batch)
        if hasattr(self.negatives, "after"):
            self.negatives.after(batch, queries.detach().float(), documents.detach().float())
        scores, targets = self._scores(batch, queries, documents)
        value = loss(scores, targets, *((queries.float(), documents.float()) if loss.encodings else ()))
        kind = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        require(kind == "shape ()", f"loss {self.loss_name!r} must return one number, of shape (); it returned {kind}")
        return value

    def _encodings(self, batch: Batch | DeferredBatch) -> tuple[Batch, Tensor, Tensor]:
        # The batch, with what its queries retrieve, and the encodings of both sides.
        with self.clock("encoding queries"):
            queries = self._encoded(self.module.queries, batch.queries)
        if isinstance(batch, DeferredBatch):
            with torch.no_grad():
                looking = queries
                if any(getattr(part, "token_dropout", 0) for part in self.module.modules()):
                    # Queries retrieve whole, where the loss sees only a part of them.
                    looking = self.module.eval().queries(batch.queries)
                    self.module.train()
                batch = batch.close(looking.detach().float().cpu().numpy())
        with self.clock("encoding documents"):
            documents = self._encoded(self.module.documents, batch.documents).to(queries.device)
        if batch.vectors is not None:
            documents = torch.cat([documents, batch.vectors.to(documents)])
        return batch, queries, documents

    def _encoded(self, encode: Callable[[TokenTable], Tensor], given: TokenTable | Tensor) -> Tensor:
        # Encodings of texts, if they are none yet; in chunks, which are encoded once more to go backward.
        if isinstance(given, Tensor) or self.chunk is None:
            return given if isinstance(given, Tensor) else encode(given)
        rows = np.arange(len(given))
        parts = (given.take(rows[start : start + self.chunk]) for start in rows[:: self.chunk])
        # The scale tells on which device the second pass must drop what the first one dropped.
        again = partial(checkpoint, lambda part, _: encode(part), use_reentrant=False)
        return torch.cat([again(part, self.module.alpha) for part in parts])

    def _scores(self, batch: Batch, queries: Tensor, documents: Tensor) -> tuple[Tensor, Tensor]:
        # The scores that the loss takes, and their targets. Inner products have no bound, and bfloat16 has eight bits.
        exact = batch.exact or self.module.similarity == "dot"
        with torch.autocast(queries.device.type, enabled=False) if exact else nullcontext():
            scores = self.module.score(queries, documents, batch.shared, losses.get(self.loss_name).scaled).float()
        if batch.log_shares is not None:
            scores = scores - batch.log_shares.to(scores.device)
        targets = _fitting(scores, batch.targets)
        return scores, only_hardest(scores, targets) if batch.hardest else targets

    @torch.no_grad()
    def centre(self) -> None:
        r"""Start the learned shift :math:`\beta` where the first batch's mean probability is its share of positives.

        From a shift of 0 the first gradients of a logistic loss, of which most cells are negatives, push all
        similarities down, and the encoder is lost (Lin et al. 2017, section 3.3; Zhai et al. 2023, section 3.2).
        """
        from scipy.optimize import brentq
        from scipy.special import expit, logit

        self.module.eval()
        scores, targets = self._scores(*self._encodings(self.batch(0)))
        logits = (scores - self.module.beta)[targets != losses.IGNORE].double().cpu().numpy()
        positives = (targets == losses.POSITIVE).sum().item()
        share = np.clip(positives / len(logits), 0.5 / len(logits), 1 - 0.5 / len(logits))
        reach = np.abs(logits).max() + abs(logit(share)) + 1
        self.module.beta.fill_(brentq(lambda shift: expit(logits + shift).mean() - share, -reach, reach))

    def state(self) -> dict[str, Tensor]:
        return self.negatives.state()

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.negatives.set_state(tensors)


def _fitting(scores: Tensor, targets: Tensor) -> Tensor:
    # Targets beside scores: where someone's own negatives give others, torch would repeat them.
    wrong = f"scores of shape {tuple(scores.shape)} need targets of that shape; these have {tuple(targets.shape)}"
    require(scores.shape == targets.shape, wrong)
    return targets.to(scores.device)


class PairTask(RetrievalTask):
    """A model that reads query and document together; it makes scores (B, n) of B queries and B * n documents."""

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of a batch; `SettingError` where the documents are not each query's own."""
        own = isinstance(batch, Batch) and not batch.shared
        require(own, f"{type(self.negatives).__name__} gives no documents of their own to each query, as pairs need")
        scores = self.module(batch.queries, batch.documents).float()
        return losses.get(self.loss_name)(scores, _fitting(scores, batch.targets))


class Multitask(Task):
    """Several tasks that share parameters; the loss is their mean (Gillick 2018, section 2: uniform weights)."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks, self.module = list(tasks), nn.ModuleList(task.module for task in tasks)
        self.pairs = max(task.pairs for task in tasks)  # the smaller tasks come round more often

    def batch(self, step: int) -> list[Any]:
        return [task.batch(step) for task in self.tasks]

    def loss(self, batch: list[Any]) -> Tensor:
        return torch.stack([task.loss(part) for task, part in zip(self.tasks, batch, strict=True)]).mean()

    def state(self) -> dict[str, Tensor]:
        return {f"{i}/{name}": tensor for i, task in enumerate(self.tasks) for name, tensor in task.state().items()}

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:
        for i, task in enumerate(self.tasks):
            task.set_state(below(tensors, f"{i}/"))


def below(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return what is kept under names that begin with a prefix, under the rest of these names."""
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


@dataclass(eq=False)
class DrawingTask(Task):
    """A module, and what it is trained on, drawn step by step; the subclass says what the loss is."""

    module: nn.Module
    source: PairSource | MaskedPassages
    batch_size: int
    seed: int

    @property
    def pairs(self) -> int:
        return len(self.source)

    def batch(self, step: int) -> Any:
        return self.source.draw(step, self.batch_size, self.seed)


class MaskedTask(DrawingTask):
    """A `MaskedLanguageModel` that predicts hidden tokens of `MaskedPassages` (Devlin et al. 2019)."""

    def loss(self, batch: Masked) -> Tensor:
        logits = self.module(batch.inputs, batch.positions).float()
        return F.cross_entropy(logits, torch.from_numpy(batch.originals).to(logits.device))


class WritingTask(DrawingTask):
    """A `retlib.models.generator.Bart` that writes the queries of pairs, given their documents."""

    def loss(self, batch: Pairs) -> Tensor:
        r"""Return :math:`-\frac{1}{n} \sum_t \log p(w_t \mid w_{<t}, passage)` over the n tokens, with ends."""
        tokens = len(batch.queries.ids) + len(batch)
        return -self.module.log_likelihoods(batch.documents, batch.queries).sum() / tokens
