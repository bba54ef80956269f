"""Collections whose candidates are passages: what is merged, split, judged and left out; on small and real files."""

from realdata import real
from releases import ABSTRACTS, DEE, KING, RELEASES, TABLE, relevant

from retlib.data import datasets
from retlib.data.collection import hash_position
from retlib.data.datasets import catalogue, released
from retlib.evaluation.measures import evaluate


def check_asked(collection):
    """What holds of every collection of questions about passages."""
    documents, queries = collection.documents, collection.queries
    assert not documents["text"].duplicated().any() and not queries["text"].duplicated().any()
    assert {*queries["split"]} <= {"train", "dev", "test"}
    assert (queries["split"] == "test").equals(queries["position"] >= 0.8)
    first = collection.qrels.drop_duplicates("query_id").set_index("query_id")["doc_id"]
    assert first.loc[queries.index].tolist() == queries["cluster"].tolist()


def test_a_question_asks_for_its_passage(release):
    release("squad")
    collection = datasets.load("squad-passages")
    check_asked(collection)
    # A passage that stands twice is one, under its first title; one that nobody asked about is a candidate too.
    assert collection.documents["title"].tolist() == ["River Dee", "A King", "A King"]
    for text in ("Where does the Dee rise?", "What is it called?", "What is over the end?"):
        assert relevant(collection, text) == {DEE: 1}
    assert relevant(collection, "Whom did Smith meet?") == {KING: 1}
    assert relevant(collection, "Which rises?") == {DEE: 1, KING: 1}
    assert len(collection.queries) == 7 and {*collection.provenance} == {*RELEASES["squad"]}


def test_natural_questions_keep_those_without_an_answer_span(release):
    release("natural-questions")
    collection = datasets.load("natural-questions-passages")
    check_asked(collection)
    assert collection.documents[["text", "title"]].to_numpy()[0].tolist() == [TABLE, "Wild card"]
    assert relevant(collection, "who is last") == relevant(collection, "who is nowhere") == {TABLE: 1}
    assert len(collection.queries) == 7


def test_insuranceqa_joins_its_files(release):
    release("insuranceqa")
    collection = datasets.load("insuranceqa")
    answers = {"a premium be, as they say, a price": 1, "the price\nof it": 1}
    assert relevant(collection, "what be a premium") == answers and relevant(collection, "who insure") == {"x y": 1}
    # A question without a right answer is no query; a wrong answer is a candidate.
    assert len(collection.queries) == 2 and len(collection.documents) == 4 and {*collection.documents["title"]} == {""}


def test_bioasq_documents_are_their_snippets_and_7b_is_test(release):
    release("bioasq")
    collection = datasets.load("bioasq")
    texts = {"11": "First of all. It is this.", "12": "Twelve.", "3": "Three.", "4": "Four."}
    assert collection.documents["text"].to_dict() == texts
    assert collection.documents["title"].to_dict() == {"11": "Its title.", "12": "Twelve.", "3": "", "4": ""}
    # Document 13 is listed, and nobody quotes it. A question that is asked again is that of the test side.
    for text in ("What else?", "Only a title?"):
        assert {*relevant(collection, text)} == {texts["11"], texts["12"]}
    assert {*relevant(collection, "What is it?")} == {texts["11"], "Three."}
    assert {*relevant(collection, "Is it 0?")} == {"Twelve.", "Four."}
    sides = collection.queries.set_index("text")["split"].to_dict()
    later = ["Only a title?", *(f"Is it {number}?" for number in range(40))]
    held = {text: "dev" if hash_position(text) < 0.1 else "train" for text in later}
    assert sides == held | {"What is it?": "test", "What else?": "test"} and {"train", "dev"} <= {*held.values()}


def test_nfcorpus_has_its_own_splits_and_grades(release):
    release("nfcorpus")
    collection = datasets.load("nfcorpus")
    # P1 asks what P3 asks in dev; P2 and P6 stand in one split.
    assert collection.queries["split"].to_dict() == {"P4": "test", "P3": "dev", "P2": "train", "P6": "train"}
    assert relevant(collection, "heart") == {"They lower it.": 2, "It is treated.": 1}
    assert collection.documents["title"].to_dict() == {name: title for name, (title, _) in ABSTRACTS.items()}
    assert {*collection.qrels["query_id"]} == {*collection.queries.index}
    assert {*collection.provenance} == {"beir/nfcorpus.zip"} and collection.facts["questions without an answer"] == 1


def test_the_pool_keeps_what_it_holds_and_the_public_run_all(release):
    release("trec-dl-2019")
    collection = datasets.load("trec-dl-2019")
    assert relevant(collection, "what is one") == {"one passage": 3, "another passage": 0}
    # Passage 99 is judged, and is not in the pool; nobody judged for the last query.
    assert collection.queries["split"].to_dict() == {"7": "test", "8": "test"}
    assert collection.documents["title"].tolist() == ["", ""]
    run = released.trec_run()
    assert run.columns.tolist() == ["query_id", "doc_id", "score"]
    assert run.to_numpy().tolist() == [["8", "99", 3.5], ["8", "2", 3.5], ["7", "1", -0.2]]
    assert released.RUN in collection.provenance


@real(*RELEASES["trec-dl-2019"])
def test_the_public_run_of_bm25_has_its_published_quality():
    run, collection = released.trec_run(), datasets.load("trec-dl-2019")
    judgments = catalogue.read_table("trec-dl-2019/qrels.txt", " ", ["query_id", "Q0", "doc_id", "relevance"])
    judgments = judgments.astype({"relevance": int})
    assert (run.groupby("query_id").size() == 100).all() and {*run["doc_id"]} <= {*collection.documents.index}
    values = evaluate(run, judgments, ["nDCG@10"])["value"]
    assert len(values) == 43 and len(judgments) == 9_260 and round(values.mean(), 4) == 0.5058
    # Without the judged passages outside the pool the ideal list is a little worse.
    assert round(evaluate(run, collection.qrels, ["nDCG@10"])["value"].mean(), 4) == 0.5071
