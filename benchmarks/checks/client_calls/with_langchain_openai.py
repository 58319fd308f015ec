"""The package langchain-openai."""

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from outcome import ADDRESS, MODEL, QUESTION, TOOL, report

HERE = {"base_url": f"{ADDRESS}/v1", "api_key": "none", "model": MODEL, "temperature": 0, "max_retries": 0}
CHAT = ChatOpenAI(**HERE)


report(
    {
        "chat": lambda: CHAT.invoke(QUESTION).content,
        "chat, stream": lambda: "".join(chunk.content for chunk in CHAT.stream(QUESTION)),
        "chat, tools": lambda: CHAT.bind_tools([TOOL]).invoke(QUESTION).tool_calls[0]["args"],
        "chat, logprobs": lambda: len(
            CHAT.bind(logprobs=True).invoke(QUESTION).response_metadata["logprobs"]["content"]
        ),
        "chat, n": lambda: len(ChatOpenAI(**HERE, n=3).generate([[HumanMessage(QUESTION)]]).generations[0]),
        "chat, stop": lambda: CHAT.invoke(QUESTION, stop=["42"]).content,
        "chat, seed": lambda: ChatOpenAI(**HERE, seed=1).invoke(QUESTION).content,
    }
)
