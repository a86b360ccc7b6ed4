"""What a conversation keeps, and what it takes back."""

from __future__ import annotations

from llmsnap.chat.conversation import Conversation, Message


def test_a_question_without_an_answer_is_no_message() -> None:
    """Chat templates refuse two questions in a row; it can be asked again."""
    conversation = Conversation.begun("m", "Be brief.")
    conversation.ask("hi")
    conversation.answer("")

    assert conversation.messages == [Message("system", "Be brief.")]
    assert conversation.retry()
    assert conversation.asked()[-1] == Message("user", "hi")


def test_retry_takes_the_last_answer_back() -> None:
    """Only the last one, and nothing where nothing was asked."""
    conversation = Conversation.begun("m")
    assert not conversation.retry()
    for question in ("one", "two"):
        conversation.ask(question)
        conversation.answer(question.upper())

    assert conversation.retry()
    assert conversation.messages == [Message("user", "one"), Message("assistant", "ONE")]
    assert conversation.open_question == "two"


def test_what_the_model_is_told_about_its_part_comes_first_and_once() -> None:
    """A later word takes the place of the earlier one; an empty one takes it away."""
    conversation = Conversation.begun("m")
    conversation.ask("hi")
    conversation.answer("ho")
    for text, count in (("one", 3), ("two", 3), ("", 2)):
        conversation.instruct(text)

        assert conversation.system == text
        assert len(conversation.messages) == count
