"""Part III: its parameters and tests, what generators write side by side, and what its notebooks declare."""

from dataclasses import replace

import pages
import pandas as pd
import part3_pages
import pytest
from part3_pages import stub

from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.data.articles import Articles, OutOfTarget
from retlib.evaluation import results
from retlib.models.generator import Beam, GeneratorArchitecture, Greedy, Nucleus
from retlib.studies import part3
from retlib.studies.experiment import CollectionName, Experiment, NonEmpty
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.system import System, Target
from retlib.training.trainer import Schedule
from retlib.workflow import notebooks

SOURCE, TARGET = "pydocs-source-smoke", "pydocs-target-smoke"
GIVEN = {
    "profile": "smoke", "seeds": [0, 1], "source": "run", "generators": {SOURCE: [TARGET]}, "answers": {},
    "documents": 100, "questions": 12, "adapted": [TARGET], "added": {TARGET: 20}, "added_articles": "pydocs-smoke",
}  # fmt: skip
OUTSIDE = OutOfTarget("pydocs-smoke", (TARGET,), 50)
GENERATOR = QueryGenerator(
    GeneratorArchitecture(layers=1, width=64, passage_length=16, query_length=8),
    Articles("pydocs-smoke", 300),
    Schedule(steps=3, batch_size=8),
)


def experiment(kind="DATA", **changes):
    types = {**getattr(part3, kind), **part3.ADDED, "adapted": NonEmpty[CollectionName]}
    return Experiment("32", {**GIVEN, **changes}, **types)


@pytest.fixture(scope="module")
def targets():
    return part3.targets(experiment())[SOURCE]


@pytest.fixture(scope="module")
def generator():
    return replace(GENERATOR, learns_from=datasets.load(SOURCE))


def test_a_target_is_searched_alone_and_among_further_passages(targets):
    plain, crowd = targets
    assert [each.test.name for each in targets] == [TARGET, f"{TARGET}+added"]
    assert crowd.trains is plain.test is plain.trains
    assert len(plain.test.split("test")) == 12 and 95 < len(plain.test.documents) <= 100
    assert len(crowd.test.documents) == len(plain.test.documents) + 20
    with pytest.raises(DataError, match="pydocs-smoke.* 1000000"):
        part3.targets(experiment(added={TARGET: 1_000_000}))


def test_passages_out_of_target_are_no_target_s_and_fewer_are_among_more(targets):
    # Not even those that were cut from the target.
    titles = set(datasets.load(TARGET).documents["title"])
    found, fewer = OUTSIDE.documents, OutOfTarget("pydocs-smoke", (TARGET,), 10).documents
    assert len(found) == 50 and not set(found["title"]) & titles
    assert titles > set(targets[0].test.documents["title"])
    assert set(fewer.index) < set(found.index)


def test_sentences_in_passages_stay_whole():
    reqa = {"generators": {SOURCE: ["pydocs-reqa-smoke"]}, "adapted": ["pydocs-reqa-smoke"], "added": {}}
    (cut,) = part3.targets(experiment(**reqa, documents=60, questions=5))[SOURCE]
    whole, sizes = (each.documents.groupby("passage").size() for each in (datasets.load("pydocs-reqa-smoke"), cut.test))
    assert sizes.equals(whole[sizes.index]) and len(cut.test.split("test")) > 5


def test_labels_are_those_of_targets_that_have_some():
    tests = [Target(stub(name)) for name in ("nfcorpus", "trec-dl-2019", "squad-small")]
    tests.append(Target(stub("nfcorpus+added"), stub("nfcorpus")))
    # Candidates of ReQA are sentences: no retriever is trained on its labels.
    assert part3.with_labels(tests) == ["nfcorpus", "nfcorpus+added"]


def test_sizes_are_those_of_the_paper_s_table(targets):
    found = part3.sizes({SOURCE: datasets.load(SOURCE)}, {SOURCE: targets}, OUTSIDE).set_index("collection")
    assert found.index.tolist() == [SOURCE, "out of target", TARGET, f"{TARGET}+added"]
    target = targets[0].test
    assert found["passages"][TARGET] == len(target.documents) and found["test queries"][TARGET] == 12
    assert found["fingerprint"][TARGET] == target.fingerprint[:12]
    words = target.documents["text"].str.split().str.len()
    assert found["words/passage"][TARGET] == f"{words.mean():.1f} ({words.std():.1f})"
    assert found["train queries"]["out of target"] == 0 and found["passages"]["out of target"] == 50


@pytest.mark.parametrize("page", ["32_zero_shot", "33_ablations"])
def test_the_notebooks_declare_what_is_recorded(page):
    given = notebooks.plan(pages.NOTEBOOKS.parent, "laptop")[page].parameters
    rows = results.load(page, "laptop", source="reference").rows
    assert part3_pages.recorded(page, given) == {*zip(rows["system"], rows["collection"], rows["measure"], strict=True)}


def test_one_system_or_several_are_chosen_and_another_is_refused():
    for chosen in ("Siamese | WikiGQ", ["Siamese | WikiGQ", "Two-Tower | Source"]):
        _, studies = part3_pages.declared("32_zero_shot", {"system": chosen})
        trained = [name for name, system in studies[0][0].systems.items() if isinstance(system, System)]
        assert trained == ([chosen] if isinstance(chosen, str) else chosen)
        assert {"BM25", "BM25, stemmed"} <= set(studies[0][0].systems)  # what all stand beside
    with pytest.raises(SettingError, match="WikiGP"):
        part3_pages.declared("32_zero_shot", {"system": "WikiGP"})


# --- what is written -------------------------------------------------------------------------------

DECODINGS = {"Greedy": Greedy(), "Beam": Beam(), "Nucleus": Nucleus()}


@pytest.fixture(scope="module")
def panels(targets, generator):
    writers = {name: (generator, how) for name, how in DECODINGS.items()}
    return part3.panels([*targets[:1], Target(stub("squad-small"))], writers, 8, [0, 1])


def test_passages_are_some_that_real_queries_ask_for(targets, panels):
    (panel,), target = panels, targets[0].test  # sentences in passages are left to other pages
    (fewer,) = part3.panels(targets[:1], {}, 5, [0])
    assert set(fewer.texts.index) < set(panel.texts.index) <= set(target.qrels["doc_id"]) and len(panel.texts) == 8
    real = panel.queries["Real", 0]
    assert set(real["passage_id"]) == set(panel.texts.index) and set(real["query"]) <= set(target.queries["text"])


def test_statistics_are_recorded_for_real_queries_and_every_decoding(panels):
    desk = experiment()
    found = part3.record_statistics(desk, panels)
    kinds = found.groupby("by", sort=False)["seed"].agg(sorted).to_dict()
    assert kinds == {"Real": [0], "Greedy": [0, 1], "Beam": [0, 1], "Nucleus": [0, 1]}
    rows = found.set_index(["by", "seed"])
    assert not rows.loc[("Beam", 0)].equals(rows.loc[("Beam", 1)])  # nothing is drawn, by another generator
    assert rows["pairs"]["Beam", 0] > rows["pairs"]["Greedy", 0]
    made = desk.results.rows.set_index(["system", "measure", "seed"])["value"]
    for by, seed in (("Beam", 1), ("Nucleus", 1), ("Real", 0)):
        for measure in ("pairs", "round trip", "overlap"):
            assert made[by, measure, seed] == pytest.approx(rows[measure][by, seed])


def test_examples_begin_with_the_best_and_end_with_the_worst(targets, panels):
    target, texts, _ = panels[0]
    order = texts.index[:6].tolist()
    # Queries of the first passage are its own words, those of the second half so, of the others another's.
    rows = [(each, texts[each if place == 0 or (place, i) == (1, 0) else order[0]])
            for place, each in enumerate(order) for i in range(2)]  # fmt: skip
    queries = {key: pd.DataFrame(rows, columns=["passage_id", "query"]) for key in (("Nucleus", 0), ("Beam", 1))}
    shown = [part3.Panel(target, texts[order], {("Real", 0): panels[0].queries["Real", 0], **queries})]
    found = part3.examples(shown, "Nucleus", 2, 0)
    assert found.columns.tolist() == ["target", "passage", "real", "Nucleus"] and len(found) == 4
    assert found["passage"].tolist()[:2] == texts[order[:2]].tolist()
    assert [line[0] for line in found["Nucleus"][0].split("\n")] == ["✓", "✓"]
    assert [line[0] for line in found["Nucleus"][1].split("\n")] == ["✓", "✗"]
    assert "✓" not in found["Nucleus"][3]
    assert (found["target"] == TARGET).all() and found["real"][0] in set(targets[0].test.queries["text"])
    assert part3.examples(shown, "Nucleus", 2, 0, [TARGET]).equals(found)
    assert len(part3.examples(shown, "Nucleus", 2, 0, ["another"])) == 0


def test_losses_are_those_of_the_trainings(generator):
    losses = part3.losses({"small": generator}, [0, 1])
    assert losses.columns.tolist() == ["step", "generator", "seed", "loss"] and set(losses["generator"]) == {"small"}
    best = [-generator.seeded(seed).fit().history.best_score for seed in (0, 1)]
    assert losses.groupby("seed")["loss"].min().tolist() == pytest.approx(best)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"generators": {}}, "generators"),
        ({"generators": {"squat": [TARGET]}}, "'squat'"),
        ({"generators": {SOURCE: [TARGET, SOURCE]}}, SOURCE),  # whose labels it has seen
        ({"generators": {SOURCE: [TARGET], "quora": [TARGET]}}, "generators"),  # one target of two
        ({"generators": {SOURCE: [TARGET, "quora"]}, "kind": "ONE_GENERATOR"}, "generators"),
        ({"generators": {SOURCE: [TARGET], "quora": ["squad"]}, "kind": "ONE_GENERATOR"}, "generators"),
        ({"generators": {SOURCE: [SOURCE]}, "kind": "ONE_GENERATOR"}, SOURCE),
        ({"adapted": ["quora"]}, "adapted"),  # which is no target
        ({"added": {"quora": 3}}, "added"),
        ({"answers": {TARGET: SOURCE}}, "answers"),
    ],
)
def test_an_impossible_parameter_is_refused(changes, name):
    with pytest.raises(SettingError, match=name):
        part3.targets(experiment(**changes))


def test_sizes_of_generators_change_the_recipe():
    for sizes in ({"large": 3}, {"large": {"steps": 0}}, {"large": {"generator_epoch": 1}}):
        with pytest.raises(SettingError, match=next(iter(sizes["large"])) if sizes["large"] != 3 else "large"):
            part3_pages.declared("36_generator_sizes", {"sizes": sizes})
    names, _ = part3_pages.declared("36_generator_sizes", {"sizes": {"small": {}, "large": {"generator_layers": 5}}})
    assert {name: each.architecture.layers for name, each in names["declared"].items()} == {"small": 2, "large": 5}
    for name in ("ICT", "Official data"):  # whose rows would be lost
        with pytest.raises(SettingError, match=name):
            part3_pages.declared("36_generator_sizes", {"sizes": {name: {}}})
