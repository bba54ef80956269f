"""SQuAD 1.1 as retrieval: of the sentence that answers (ReQA: Ahmad 2019; Chang 2020, section 4.1), or its passage."""

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from urllib.parse import unquote

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import content
from retlib.data.datasets._tasks import Passage, Question, asked, reqa, sentence_spans
from retlib.data.splits import hash_position

# What a dense run on a laptop can bear.
SMALL = 20_000


@register("squad")
def load_squad() -> Collection:
    """Return all of the training file: candidates are its (sentence, passage) pairs.

    Sentences are those of `quick_sentences`; relevant is the one that holds the answer where `answer_start` says. In
    the copy that was rebuilt from the explorer pages this is the first occurrence of the answer: 10.8 % of its answers
    stand in their passage more than once (`ambiguous`), 9.4 % in more than one sentence. Of its 87,599 questions 255
    repeat another's text and 95 have an answer that runs over the end of a sentence; 87,249 questions and 90,604
    candidates are left.
    """
    return reqa("squad", _passages())


@register("squad-small")
def load_small() -> Collection:
    """Return whole articles of `squad`, chosen by a hash of their titles, with about 20,000 candidates."""
    passages, sizes = list(_passages()), Counter()
    for passage in passages:
        sizes[passage.article] += len(passage.spans)
    order = sorted(sizes, key=hash_position)
    before = accumulate((sizes[article] for article in order), initial=0)
    chosen = {article for article, size in zip(order, before, strict=False) if size < SMALL}
    return reqa("squad-small", (passage for passage in passages if passage.article in chosen))


@register("squad-passages")
def load_passages() -> Collection:
    """Return all questions of the training file, with its paragraphs as candidates.

    18,896 paragraphs, of which five repeat another's text; 87,599 questions, of which 255 do.
    """
    return asked("squad-passages", _passages())


def _passages() -> Iterator[Passage]:
    for article in content("squad", "squad/train-v1.1.json")["data"]:
        name = article["title"]
        for paragraph in article["paragraphs"]:
            text = paragraph["context"]
            answers = [(entry["question"].strip(), entry["answers"][0]) for entry in paragraph["qas"]]
            questions = tuple(Question(asked, answer["answer_start"], answer["text"]) for asked, answer in answers)
            for question in questions:
                if not question.answer or not text.startswith(question.answer, question.start):
                    raise ValueError(f"the answer to {question.text!r} is not where it is said to be")
            yield Passage(name, unquote(name).replace("_", " "), text, tuple(sentence_spans(text)), questions)
