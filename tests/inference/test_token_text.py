from hypothesis import given
from hypothesis import strategies as st

from inference.token_text import TokenText


def feed_all(text: TokenText, pieces: list[bytes]) -> list[str]:
    return [text.feed(piece) for piece in pieces]


def test_it_never_shows_half_a_character() -> None:
    text = TokenText()

    shown = feed_all(text, ["é".encode()[:1], "é".encode()[1:] + b"a", "😀".encode()[:3], "😀".encode()[3:]])

    assert shown == ["", "éa", "", "😀"]
    assert text.finish() == ""


def test_it_replaces_a_character_that_never_becomes_whole() -> None:
    text = TokenText()

    shown = feed_all(text, [b"a", "é".encode()[:1]])

    assert shown == ["a", ""]
    assert text.finish() == "\ufffd"


def test_it_withholds_what_may_become_a_stop_string() -> None:
    text = TokenText(stop=["END."])

    shown = feed_all(text, [b"the E", b"N", b"tire EN"])

    assert shown == ["the ", "", "ENtire "]
    assert text.finish() == "EN"
    assert not text.stopped


def test_it_cuts_at_the_stop_string_and_shows_nothing_after_it() -> None:
    text = TokenText(stop=["\n\n", "END"])

    shown = feed_all(text, [b"a EN", b"D b\n\n", b"more"])

    assert shown == ["a ", "", ""]
    assert text.stopped
    assert text.finish() == ""


def test_it_cuts_at_the_stop_string_that_is_complete_first() -> None:
    text = TokenText(stop=["later", "now"])
    other = TokenText(stop=["a", " aa"])

    assert text.feed(b"stop now, not later") == "stop "
    assert text.stopped
    assert other.feed(b"  aa") == "  "


@given(
    st.text(alphabet="abé😀 \n", max_size=40), st.lists(st.text("ab \n", min_size=1, max_size=3), max_size=3), st.data()
)
def test_it_shows_the_same_text_however_the_bytes_are_cut(answer: str, stop: list[str], data: st.DataObject) -> None:
    whole = answer.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    text = TokenText(stop)

    shown = "".join(feed_all(text, pieces))
    shown += text.finish()

    found = min(((answer.find(s) + len(s), answer.find(s)) for s in stop if s in answer), default=(0, len(answer)))
    assert shown == answer[: found[1]]
