"""Chat templates of well-known models, rebuilt by their shape: thoughts, tools, results, and what comes before them."""

HERMES_CHAT = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HERMES_TOOLS = """\
{{- bos_token }}
{{- '<|im_start|>system\n' }}
{{- "You are a function calling AI model. Here are the available tools: <tools> " }}
{%- for tool in tools %}{{- tool | tojson + '\n' }}{%- endfor %}
{{- " </tools>" }}
{{- '<|im_end|>\n' }}
{%- for message in messages %}
    {%- if message.role == "user" or message.role == "system"
            or (message.role == "assistant" and message.tool_calls is not defined) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- for tool_call in message.tool_calls %}
            {{- '\n<tool_call>\n' }}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '{"name": "' + tool_call.name + '", "arguments": ' + tool_call.arguments | tojson + '}' }}
            {{- '\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}
            {{- '<|im_start|>tool\n' }}
        {%- endif %}
        {{- '<tool_response>\n' }}
        {{- message.content }}
        {%- if not loop.last %}
            {{- '\n</tool_response>\n' }}
        {%- else %}
            {{- '\n</tool_response>' }}
        {%- endif %}
        {%- if not loop.last and loop.nextitem.role != "tool" %}
            {{- '<|im_end|>' }}
        {%- elif loop.last %}
            {{- '<|im_end|>' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
HERMES = {"default": HERMES_CHAT, "tool_use": HERMES_TOOLS}
"""As Hermes 2 Pro's: the template for chats knows neither tools nor their results."""

QWEN3 = """\
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- "# Tools\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools>\n\nReturn a json object within <tool_call></tool_call> XML tags.<|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user"
            and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') }}
            {{- '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}
                {%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
COUNTING = (
    "{% set seen = namespace(results=0) %}{% if tools %}{{ '<|im_start|>system\n' + tools | tojson + '<|im_end|>\n' }}"
    "{% endif %}{% for m in messages %}{% if m['role'] == 'tool' %}{% set seen.results = seen.results + 1 %}"
    "{{ '<|im_start|>tool\n' }}{% if seen.results == 1 %}{{ 'First result: ' }}{% else %}{{ 'Result ' }}"
    "{{ seen.results }}{{ ': ' }}{% endif %}{{ m['content'] + '<|im_end|>\n' }}{% else %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] }}{% for call in m['tool_calls'] or [] %}"
    "{{ '<tool_call>{\"name\": \"' + call['function']['name'] + '\", \"arguments\": ' }}"
    "{{ call['function']['arguments'] | tojson }}{{ '}</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The first result is written in another way than those after it."""

AFTER_A_CALL = COUNTING.replace(
    "{% if seen.results == 1 %}", "{% if loop.previtem is defined and loop.previtem['tool_calls'] %}"
)
"""The result behind a call is written in another way than one behind anything else."""

DEEPSEEK = (
    "{% set ns = namespace(is_tool=false, is_output_first=true) %}{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{% set ns.is_tool = false %}{{ '<|user|>' + message['content'] }}"
    "{% elif message['role'] == 'assistant' %}{% if ns.is_tool %}{{ '<outputs_end>' }}{% set ns.is_tool = false %}"
    "{% else %}{{ '<|assistant|>' }}{% endif %}{{ message['content'].split('</think>')[-1] + eos_token }}"
    "{% elif message['role'] == 'tool' %}{% set ns.is_tool = true %}{% if ns.is_output_first %}"
    "{{ '<outputs_begin><output_begin>' + message['content'] + '<output_end>' }}{% set ns.is_output_first = false %}"
    "{% else %}{{ '\n<output_begin>' + message['content'] + '<output_end>' }}{% endif %}{% endif %}{% endfor %}"
    "{% if ns.is_tool %}{{ '<outputs_end>' }}{% endif %}"
    "{% if add_generation_prompt and not ns.is_tool %}{{ '<|assistant|>' }}{% endif %}"
)
"""As DeepSeek V3's: outputs are opened once in a conversation, and a reply to them has no header."""

LLAMA31 = (
    "{{ bos_token }}{% if not date_string is defined %}{% if strftime_now is defined %}"
    "{% set date_string = strftime_now('%d %b %Y') %}{% else %}{% set date_string = '26 Jul 2024' %}{% endif %}"
    "{% endif %}{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] | trim %}"
    "{% set messages = messages[1:] %}{% else %}{% set system_message = '' %}{% endif %}"
    "{{ '<|start_header_id|>system<|end_header_id|>\n\n' }}{% if tools is not none %}{{ 'Environment: ipython\n' }}"
    "{{ tools | tojson }}{% endif %}{{ 'Cutting Knowledge Date: December 2023\nToday Date: ' + date_string + '\n\n' }}"
    "{{ system_message + '<|eot_id|>' }}{% for message in messages %}"
    "{% if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}"
    "{% elif 'tool_calls' in message %}{% if not message.tool_calls | length == 1 %}"
    "{{ raise_exception('This model only supports single tool-calls at once!') }}{% endif %}"
    "{% set call = message.tool_calls[0].function %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{{ '{\"name\": \"' + call.name + '\", \"parameters\": ' }}{{ call.arguments | tojson }}{{ '}<|eot_id|>' }}"
    "{% elif message.role == 'tool' or message.role == 'ipython' %}"
    "{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' }}{% if message.content is mapping %}"
    "{{ message.content | tojson }}{% else %}{{ message.content }}{% endif %}{{ '<|eot_id|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
