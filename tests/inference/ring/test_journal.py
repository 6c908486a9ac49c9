"""The journal of a ring against a plain model of sequences, over random histories."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from inference.ring.journal import Journal

NUMBERS = st.integers(0, 5)


class JournalMachine(RuleBasedStateMachine):
    """Does to a journal and to a dict of lists whatever a lane may do to its context."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal()
        self.model: dict[int, list[int]] = {}

    @rule(data=st.data(), sequences=st.lists(NUMBERS, min_size=1, max_size=8))
    def decode(self, data: st.DataObject, sequences: list[int]) -> None:
        tokens = data.draw(st.lists(st.integers(0, 99), min_size=len(sequences), max_size=len(sequences)))
        positions = []
        for token, sequence in zip(tokens, sequences, strict=True):
            positions.append(len(self.model.setdefault(sequence, [])))
            self.model[sequence].append(token)

        self.journal.decoded(*(np.array(values, np.int32) for values in (tokens, positions, sequences)))

    @rule(sequence=NUMBERS)
    def remove(self, sequence: int) -> None:
        self.model.pop(sequence, None)

        self.journal.remove(sequence)

    @precondition(lambda self: any(number not in self.model for number in range(6)) and self.model)
    @rule(data=st.data(), moves=st.booleans())
    def copy_or_move(self, data: st.DataObject, moves: bool) -> None:
        source = data.draw(st.sampled_from(sorted(self.model)))
        target = data.draw(st.sampled_from([number for number in range(6) if number not in self.model]))
        self.model[target] = list(self.model[source])

        if moves:
            del self.model[source]
            self.journal.move(source, target)
        else:
            self.journal.copy(source, target)

    @rule()
    def clear(self) -> None:
        self.model.clear()

        self.journal.clear()

    @invariant()
    def it_knows_every_living_sequence(self) -> None:
        assert self.journal.sequences == {number: tuple(tokens) for number, tokens in self.model.items()}
        assert self.journal.token_count == sum(len(tokens) for tokens in self.model.values())

    @invariant()
    def its_chunks_read_everything_again(self) -> None:
        again = Journal()
        for chunk in self.journal.chunks(3):
            assert 1 <= len(chunk.tokens) <= 3
            again.decoded(chunk.tokens, chunk.positions, chunk.sequences)

        assert again.sequences == self.journal.sequences


TestJournal = JournalMachine.TestCase
