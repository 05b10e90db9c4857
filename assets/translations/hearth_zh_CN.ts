<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="zh_CN" sourcelanguage="en">
<context>
<name>Hearth</name>
<message><source>Every new chat with {name} starts with these choices</source><translation>与 {name} 的每个新对话都以这些选择开始</translation></message>
<message><source>New chats with {name} use the settings again</source><translation>与 {name} 的新对话重新使用设置</translation></message>
<message><source>No model is loaded.</source><translation>未加载模型。</translation></message>
<message><source>Saved as {name}</source><translation>已保存为 {name}</translation></message>
<message><source>This chat uses a server. Only answers from this PC can be compared.</source><translation>此聊天会发送到服务器：只能比较此电脑的回答。</translation></message>
<message><source>This model computes every neuron anyway, so there is nothing to compare.</source><translation>此模型本来就计算每个神经元，没有可比较的。</translation></message>
<message><source>{model} here: {costs}.</source><translation>{model} 在此电脑上：{costs}。</translation></message>
<message><source>Already in memory</source><translation>已在内存中</translation></message>
<message><source>Another program on this PC</source><translation>本机上的另一程序</translation></message>
<message><source>Answer</source><translation>回答</translation></message>
<message><source>Context</source><translation>上下文</translation></message>
<message><source>Cut off at the length limit</source><translation>因达到长度上限而中断</translation></message>
<message><source>Cut off: the context is full</source><translation>已中断：上下文已满</translation></message>
<message><source>Dense</source><translation>稠密</translation></message>
<message><source>Exact</source><translation>精确</translation></message>
<message><source>First token after</source><translation>首个 token 用时</translation></message>
<message><source>Guessed by a smaller model</source><translation>由较小模型猜测</translation></message>
<message><source>Guessed tokens</source><translation>预测的 token</translation></message>
<message><source>High</source><translation>高</translation></message>
<message><source>Interrupted: Hearth closed in mid-answer</source><translation>已中断：Hearth 在回答途中关闭</translation></message>
<message><source>Left out of the context</source><translation>已移出上下文</translation></message>
<message><source>Loaded from disk</source><translation>从磁盘载入</translation></message>
<message><source>Low</source><translation>低</translation></message>
<message><source>Medium</source><translation>中</translation></message>
<message><source>Model</source><translation>模型</translation></message>
<message><source>Neurons</source><translation>神经元</translation></message>
<message><source>Neurons computed</source><translation>计算的神经元</translation></message>
<message><source>Neurons that fired</source><translation>激活的神经元</translation></message>
<message><source>Not finished: the engine failed</source><translation>未完成：引擎出错</translation></message>
<message><source>Not finished: the server stopped answering</source><translation>未完成：服务器没有回答</translation></message>
<message><source>Off</source><translation>关</translation></message>
<message><source>On</source><translation>开</translation></message>
<message><source>Prompt</source><translation>提示</translation></message>
<message><source>Reading</source><translation>阅读</translation></message>
<message><source>Server, not on this PC</source><translation>服务器，不在此电脑上</translation></message>
<message><source>Share on the GPU</source><translation>GPU 占比</translation></message>
<message><source>Sparse</source><translation>稀疏</translation></message>
<message><source>Stopped</source><translation>已停止</translation></message>
<message><source>Summarised</source><translation>已总结</translation></message>
<message><source>Thought</source><translation>思考过程</translation></message>
<message><source>Thought for {time}</source><translation>思考了 {time}</translation></message>
<message><source>Time</source><translation>时间</translation></message>
<message><source>Writing</source><translation>书写</translation></message>
<message><source>first after {time}</source><translation>首个 token {time}</translation></message>
<message><source>from {server}, another program on this PC</source><translation>来自 {server}，本机上的另一程序</translation></message>
<message><source>from {server}, not on this PC</source><translation>来自 {server}，不在此电脑上</translation></message>
<message><source>under 1%</source><translation>不到 1%</translation></message>
<message numerus="yes"><source>{n} messages</source><translation><numerusform>{n} 条消息</numerusform></translation></message>
<message><source>{n} of {total} right</source><translation>{total} 个中有 {n} 个正确</translation></message>
<message numerus="yes"><source>{n} tokens</source><translation><numerusform>{n} 个 token</numerusform></translation></message>
<message><source>{share} of neurons</source><translation>{share} 的神经元</translation></message>
<message><source>{tokens} in {time}</source><translation>{tokens}，用时 {time}</translation></message>
<message><source>{used} of {total}</source><translation>{used} / {total}</translation></message>
<message><source>Both are about as fast here.</source><translation>两者在这里速度相近。</translation></message>
<message><source>Both wrote the same words.</source><translation>两者写出的内容相同。</translation></message>
<message numerus="yes"><source>The first {n} words are the same; then they differ.</source><translation><numerusform>前 {n} 个词相同，之后开始不同。</numerusform></translation></message>
<message><source>They differ from the first word.</source><translation>从第一个词起就不同。</translation></message>
<message><source>{faster} is {times} times as fast as {slower} here.</source><translation>{faster}在这里的速度是{slower}的 {times} 倍。</translation></message>
<message><source>Auto</source><translation>自动</translation></message>
<message><source>Not measured yet. After some answers, this shows how fast each one is.</source><translation>尚未测量：有了回答后，这里会显示各模式的速度。</translation></message>
<message numerus="yes"><source>{rates}, in {n} answers on this PC</source><translation><numerusform>{rates}，基于此电脑上的 {n} 个回答</numerusform></translation></message>
<message><source>Concise</source><translation>简洁</translation></message>
<message><source>Copy editor</source><translation>文字编辑</translation></message>
<message><source>Patient teacher</source><translation>耐心的老师</translation></message>
<message><source>Programmer</source><translation>程序员</translation></message>
<message><source>{name} contains no personas.</source><translation>{name} 不含角色。</translation></message>
<message><source>As in the settings, otherwise as the model's maker recommends</source><translation>按设置，否则按模型作者的建议</translation></message>
<message><source>As is</source><translation>保持原样</translation></message>
<message><source>Balanced</source><translation>均衡</translation></message>
<message><source>Creative</source><translation>创意</translation></message>
<message><source>Facts, code, translations</source><translation>事实、代码、翻译</translation></message>
<message><source>Precise</source><translation>精准</translation></message>
<message><source>Stories, ideas</source><translation>故事、点子</translation></message>
<message><source>{name} contains no presets.</source><translation>{name} 不含预设。</translation></message>
<message><source>Explain</source><translation>解释</translation></message>
<message><source>Explain {topic} so that {reader} understands it.</source><translation>请解释{topic}，让{reader}能够理解。</translation></message>
<message><source>Summarise</source><translation>总结</translation></message>
<message><source>Summarise this text in at most {number} sentences:</source><translation>请用不超过 {number} 句话概括以下文本：</translation></message>
<message><source>Translate</source><translation>翻译</translation></message>
<message><source>Translate this text into {language}:</source><translation>请将以下文本翻译成{language}：</translation></message>
<message><source>language</source><translation>语言</translation></message>
<message><source>number</source><translation>数量</translation></message>
<message><source>reader</source><translation>读者</translation></message>
<message><source>text</source><translation>文本</translation></message>
<message><source>topic</source><translation>主题</translation></message>
<message><source>{name} contains no prompts.</source><translation>{name} 中没有提示词。</translation></message>
<message><source>Chat moved to the bin</source><translation>对话已移入回收站</translation></message>
<message><source>Hearth asks again before every call</source><translation>Hearth 会在每次调用前重新询问</translation></message>
<message><source>Recording stopped</source><translation>已停止记录</translation></message>
<message><source>Recording the tokens of this chat</source><translation>正在记录此对话的 token</translation></message>
<message><source>The model repeated its calls of tools, so they were not run again</source><translation>模型重复了相同的工具调用，因此未再次运行</translation></message>
<message><source>Chat pinned</source><translation>已固定聊天</translation></message>
<message><source>Chat restored</source><translation>对话已恢复</translation></message>
<message><source>Chat unpinned</source><translation>已取消固定</translation></message>
<message><source>Moved to “{folder}”</source><translation>已移至“{folder}”</translation></message>
<message><source>Moved to “{folder}”, which already existed</source><translation>已移入已有的“{folder}”</translation></message>
<message><source>Removed from “{folder}”</source><translation>已移出“{folder}”</translation></message>
<message><source>Removed from “{folder}”: {chats}</source><translation>已移出“{folder}”：{chats}</translation></message>
<message><source>There is no chat in this file</source><translation>此文件中没有聊天</translation></message>
<message><source>With your next message, the instructions and notes of this project go to {host}.</source><translation>发送下一条消息时，此项目的指令和笔记会发送到 {host}。</translation></message>
<message><source>Your next message sends this whole chat and its attachments to {host}.</source><translation>发送下一条消息时，此对话的全部内容及其附件都会发送到 {host}。</translation></message>
<message numerus="yes"><source>{n} chats</source><translation><numerusform>{n} 个聊天</numerusform></translation></message>
<message numerus="yes"><source>{n} chats deleted</source><translation><numerusform>已删除 {n} 个对话</numerusform></translation></message>
<message numerus="yes"><source>{n} chats exported to {name}</source><translation><numerusform>已将 {n} 个聊天导出到 {name}</numerusform></translation></message>
<message numerus="yes"><source>{n} chats imported</source><translation><numerusform>已导入 {n} 个聊天</numerusform></translation></message>
<message numerus="yes"><source>{n} chats were already here</source><translation><numerusform>{n} 个聊天已存在</numerusform></translation></message>
<message numerus="yes"><source>{n} were already here</source><translation><numerusform>{n} 个已存在</numerusform></translation></message>
<message><source>{server} on this PC</source><translation>本机上的 {server}</translation></message>
<message><source>Answer deleted</source><translation>已删除回答</translation></message>
<message><source>Message deleted</source><translation>已删除消息</translation></message>
<message><source>Question and answer deleted</source><translation>已删除问题和回答</translation></message>
<message><source>Still answering: stop it first, or wait</source><translation>仍在回答：请先停止或等待</translation></message>
<message><source>The original messages are used again, as far as they fit</source><translation>将重新使用原始消息（在容量允许的范围内）</translation></message>
<message numerus="yes"><source>{n} messages deleted</source><translation><numerusform>已删除 {n} 条消息</numerusform></translation></message>
<message><source>This model</source><translation>此模型</translation></message>
<message><source>{name} has no predictors, so its neurons are chosen automatically</source><translation>{name} 没有预测器：其神经元将自动选择</translation></message>
<message><source>Page of an answer</source><translation>回答中的网页</translation></message>
<message><source>SVG of an answer</source><translation>回答中的 SVG</translation></message>
<message><source>Another version from message {number} on</source><translation>从第 {number} 条消息起的另一版本</translation></message>
<message><source>Tool: {name}</source><translation>工具：{name}</translation></message>
<message><source>Version {which} of {count}</source><translation>版本 {which} / {count}</translation></message>
<message><source>failed</source><translation>失败</translation></message>
<message><source>not run</source><translation>未运行</translation></message>
<message><source>refused</source><translation>已拒绝</translation></message>
<message numerus="yes"><source>{n} pages</source><translation><numerusform>{n} 页</numerusform></translation></message>
<message><source>Attached: {name}</source><translation>附件：{name}</translation></message>
<message><source>It contains no chats that Hearth can read. Choose an export of Hearth, ChatGPT, Claude, LM Studio, Jan, Open WebUI or GPT4All.</source><translation>其中没有 Hearth 能读取的对话。请选择 Hearth、ChatGPT、Claude、LM Studio、Jan、Open WebUI 或 GPT4All 的导出文件。</translation></message>
<message><source>Reading it takes more memory than Hearth uses for an import.</source><translation>读取它所需的内存超过 Hearth 导入时使用的上限。</translation></message>
<message><source>The process that read it ended unexpectedly. Try again.</source><translation>读取它的进程意外结束。请重试。</translation></message>
<message><source>There are more than 100,000 files in it. Choose a folder with fewer.</source><translation>其中的文件超过 100,000 个。请选择文件较少的文件夹。</translation></message>
<message><source>This ZIP file is damaged. Download it again.</source><translation>此 ZIP 文件已损坏。请重新下载。</translation></message>
<message><source>This ZIP file is protected by a password. Unpack it and choose the folder.</source><translation>此 ZIP 文件受密码保护。请先解压，再选择文件夹。</translation></message>
<message><source>This ZIP file would unpack to more than 200 times its size. No real export does.</source><translation>此 ZIP 文件解压后会超过其大小的 200 倍。真正的导出文件不会这样。</translation></message>
<message><source>This file is not JSON, or it is cut off.</source><translation>此文件不是 JSON，或不完整。</translation></message>
<message><source>Message removed</source><translation>消息已移除</translation></message>
<message><source>A note can have {most} characters at most. Shorten it.</source><translation>一条笔记最多 {most} 个字符。请缩短。</translation></message>
<message><source>There is nothing to add.</source><translation>没有可添加的内容。</translation></message>
<message><source>{name} could not be used: {why}.</source><translation>无法使用 {name}：{why}。</translation></message>
<message><source>{name} could not be written: the disk is full.</source><translation>无法写入 {name}：磁盘已满。</translation></message>
<message><source>{name} is larger than {most} MB.</source><translation>{name} 大于 {most} MB。</translation></message>
<message><source>{name} is missing.</source><translation>{name} 不存在。</translation></message>
<message><source>{name} is not a file.</source><translation>{name} 不是文件。</translation></message>
<message><source>{name} is not a text in UTF-8. Save it as UTF-8.</source><translation>{name} 不是 UTF-8 文本。请将其另存为 UTF-8。</translation></message>
<message><source>Comparison stopped</source><translation>比较已停止</translation></message>
<message><source>This file contains more values than Hearth reads.</source><translation>此文件的数据量超出 Hearth 的读取范围。</translation></message>
<message><source>This file does not contain chats that Hearth exported.</source><translation>此文件不含 Hearth 导出的聊天。</translation></message>
<message><source>This file is damaged: in {where}, {what} is wrong.</source><translation>此文件已损坏：{where} 中，{what} 不正确。</translation></message>
<message><source>This file is not a text in UTF-8.</source><translation>此文件不是 UTF-8 文本。</translation></message>
<message><source>This file was written by a later version of Hearth.</source><translation>此文件由更新版本的 Hearth 写入。</translation></message>
<message><source>an id that occurs twice</source><translation>重复的标识</translation></message>
<message><source>chat {number}</source><translation>聊天 {number}</translation></message>
<message><source>the arguments</source><translation>参数</translation></message>
<message><source>the attachment itself</source><translation>附件本身</translation></message>
<message><source>the call itself</source><translation>调用本身</translation></message>
<message><source>the chat itself</source><translation>聊天本身</translation></message>
<message><source>the choices</source><translation>选择</translation></message>
<message><source>the file</source><translation>文件</translation></message>
<message><source>the id</source><translation>标识</translation></message>
<message><source>the kind</source><translation>类型</translation></message>
<message><source>the leaf</source><translation>末尾</translation></message>
<message><source>the message itself</source><translation>消息本身</translation></message>
<message><source>the number of pages</source><translation>页数</translation></message>
<message><source>the parent</source><translation>上级</translation></message>
<message><source>the place of the source</source><translation>来源的位置</translation></message>
<message><source>the role</source><translation>角色</translation></message>
<message><source>the source</source><translation>来源</translation></message>
<message><source>the state</source><translation>状态</translation></message>
<message><source>the statistic {name}</source><translation>统计项 {name}</translation></message>
<message><source>the statistics</source><translation>统计</translation></message>
<message><source>the version</source><translation>版本</translation></message>
<message><source>{where}, attachment {number}</source><translation>{where}，附件 {number}</translation></message>
<message><source>{where}, call {number}</source><translation>{where}，调用 {number}</translation></message>
<message><source>{where}, message {number}</source><translation>{where}，消息 {number}</translation></message>
<message><source>Cut off at the limit</source><translation>因达到上限而中断</translation></message>
<message><source>Instructions</source><translation>指令</translation></message>
<message><source>Interrupted</source><translation>已中断</translation></message>
<message><source>Not finished</source><translation>未完成</translation></message>
<message><source>This file is larger than {most} MiB. Hearth does not read files of that size.</source><translation>此文件大于 {most} MiB，Hearth 不予读取。</translation></message>
<message><source>You</source><translation>您</translation></message>
<message><source>New chat</source><translation>新聊天</translation></message>
<message><source>Hearth keeps at most {most}.</source><translation>最多保留 {most} 个。</translation></message>
<message><source>{name} contains nothing that Hearth exported.</source><translation>{name} 不含 Hearth 导出的内容。</translation></message>
<message><source>{name} could not be read: {why}.</source><translation>无法读取 {name}：{why}。</translation></message>
<message><source>{name} is not a JSON file.</source><translation>{name} 不是 JSON 文件。</translation></message>
<message><source>{name} was written by a newer Hearth.</source><translation>{name} 由更新版本的 Hearth 写入。</translation></message>
<message numerus="yes"><source>{n} threads</source><translation><numerusform>{n} 线程</numerusform></translation></message>
<message><source>A tiny demonstration model that answers simple questions and tells small stories.</source><translation>一个极小的演示模型，能回答简单问题、讲小故事。</translation></message>
<message><source>Estimated for the model as prepared for this PC.</source><translation>按为此电脑准备后的运行情况估算。</translation></message>
<message><source>Estimated from models of the same family.</source><translation>根据同系列模型估算。</translation></message>
<message><source>Estimated without predictors; preparing can train some and make it faster.</source><translation>按无预测器估算；准备时可训练预测器以提速。</translation></message>
<message><source>Getting ready, {done} of {total} (once for this PC)</source><translation>准备中，{done}/{total}（本机仅一次）</translation></message>
<message><source>Loading</source><translation>加载中</translation></message>
<message><source>No GPU found: runs on {cores} · {memory}</source><translation>未找到 GPU：使用 {cores} · {memory}</translation></message>
<message><source>No model</source><translation>无模型</translation></message>
<message><source>No usable GPU: runs on {cores} · {memory}</source><translation>没有可用的 GPU：使用 {cores} · {memory}</translation></message>
<message><source>Not loaded</source><translation>未加载</translation></message>
<message><source>Not measured on this PC yet; estimated from similar machines.</source><translation>尚未在此电脑上测量；根据类似电脑估算。</translation></message>
<message numerus="yes"><source>Reading {n} tokens</source><translation><numerusform>正在阅读 {n} 个 token</numerusform></translation></message>
<message><source>Ready</source><translation>就绪</translation></message>
<message><source>Restarting</source><translation>正在重启</translation></message>
<message><source>Stopping</source><translation>正在停止</translation></message>
<message><source>Summarising earlier messages</source><translation>正在总结较早的消息</translation></message>
<message><source>The GPU cannot compute this model yet, so it runs on the CPU alone.</source><translation>GPU 尚不能计算此模型，因此只在 CPU 上运行。</translation></message>
<message><source>Thinking</source><translation>思考中</translation></message>
<message><source>no NVIDIA driver is installed</source><translation>未安装 NVIDIA 驱动程序</translation></message>
<message><source>the GPU needs a reset: restart the computer</source><translation>GPU 需要重置：请重新启动电脑</translation></message>
<message><source>the GPU was lost: restart the computer</source><translation>GPU 已断开：请重新启动电脑</translation></message>
<message><source>the NVIDIA driver is installed but not loaded</source><translation>NVIDIA 驱动程序已安装但未加载</translation></message>
<message><source>the NVIDIA driver was updated while it ran: restart the computer</source><translation>NVIDIA 驱动程序在运行时已更新：请重新启动电脑</translation></message>
<message><source>the machine has no GPU</source><translation>此电脑没有 GPU</translation></message>
<message><source>{memory} RAM</source><translation>{memory} 内存</translation></message>
<message numerus="yes"><source>{n} cores</source><translation><numerusform>{n} 核</numerusform></translation></message>
<message><source>A token goes through {used} of the {n} experts of each layer.</source><translation>每个 token 经过每层 {n} 个专家中的 {used} 个。</translation></message>
<message><source>Ask something: the experts that are chosen for each token light up here.</source><translation>提个问题：为每个 token 选中的专家会在这里亮起。</translation></message>
<message><source>Ask something: the neurons that fire for each token light up here.</source><translation>提个问题：每个 token 激活的神经元会在此亮起。</translation></message>
<message><source>Ask something: the rate of the answer is drawn here.</source><translation>提个问题：回答的速率会显示在此。</translation></message>
<message><source>Attention</source><translation>注意力</translation></message>
<message><source>CPU load</source><translation>处理器负载</translation></message>
<message><source>Choosing the token</source><translation>选择 token</translation></message>
<message><source>Cold neurons</source><translation>冷神经元</translation></message>
<message><source>Experts</source><translation>专家</translation></message>
<message><source>From sending to the first token</source><translation>从发送到首个 token</translation></message>
<message><source>Head</source><translation>输出头</translation></message>
<message><source>Hearth {size}</source><translation>Hearth {size}</translation></message>
<message><source>Hot neurons</source><translation>热神经元</translation></message>
<message><source>How fast the prompt was read</source><translation>阅读提示的速度</translation></message>
<message><source>Memory does not hold all experts. Those that it lacks are read from the disk for each token.</source><translation>内存容纳不下所有专家。所缺的专家会为每个 token 从磁盘读取。</translation></message>
<message><source>Memory used</source><translation>已用内存</translation></message>
<message><source>Moved to the GPU since the model was loaded: {n}.</source><translation>模型加载后移到 GPU：{n} 个。</translation></message>
<message><source>No model is loaded</source><translation>未加载模型</translation></message>
<message><source>Norms and exchange</source><translation>归一化与交换</translation></message>
<message><source>Norms, the embedding, and the time between two tokens</source><translation>归一化、嵌入以及两个 token 之间的部分</translation></message>
<message><source>Not zero: {share}.</source><translation>其中 {share} 的值不为零。</translation></message>
<message><source>Of all neurons, those computed for a token.</source><translation>全部神经元中，为一个 token 计算的部分。</translation></message>
<message><source>Of the experts that a token uses, those that are on the GPU. The CPU computes the others.</source><translation>token 所用专家中位于 GPU 上的比例。其余由 CPU 计算。</translation></message>
<message><source>Other</source><translation>其他</translation></message>
<message><source>Predictor</source><translation>预测器</translation></message>
<message><source>Sampling</source><translation>采样</translation></message>
<message><source>Share of the computed neurons that the GPU computes</source><translation>计算的神经元中，由 GPU 计算的部分</translation></message>
<message><source>The CPU waits for the GPU, which works meanwhile</source><translation>CPU 在等待，GPU 同时在工作</translation></message>
<message><source>The GPU waits for the CPU, which works meanwhile</source><translation>GPU 在等待，CPU 同时在工作</translation></message>
<message><source>Waiting</source><translation>等待</translation></message>
<message><source>active neurons are not counted here</source><translation>此处不统计哪些被激活</translation></message>
<message><source>all experts are in RAM, and the CPU computes them</source><translation>所有专家都在内存中，由 CPU 计算</translation></message>
<message><source>all experts are on the GPU</source><translation>所有专家都在 GPU 上</translation></message>
<message><source>bright: chosen often</source><translation>亮：常被选中</translation></message>
<message><source>bright: fired for one token</source><translation>亮：为一个 token 激活</translation></message>
<message><source>experts used</source><translation>使用的专家</translation></message>
<message><source>first token</source><translation>首个 token</translation></message>
<message><source>from the disk</source><translation>来自磁盘</translation></message>
<message><source>mean over the last answer</source><translation>上一个回答的平均值</translation></message>
<message><source>mean {rate} over this answer</source><translation>本回答平均 {rate}</translation></message>
<message><source>most chosen at the bottom</source><translation>最常选中的在底部</translation></message>
<message><source>neurons active</source><translation>激活的神经元</translation></message>
<message><source>of {total}</source><translation>共 {total}</translation></message>
<message><source>on the GPU</source><translation>在 GPU 上</translation></message>
<message><source>one column per layer</source><translation>每列一层</translation></message>
<message><source>one column per layer · this model uses every neuron for every token</source><translation>每列一层 · 此模型的每个神经元都为每个 token 工作</translation></message>
<message><source>one column per layer, busiest at the bottom</source><translation>每列一层，最常激活的在底部</translation></message>
<message><source>reading</source><translation>阅读</translation></message>
<message><source>the CPU computes all experts</source><translation>所有专家由 CPU 计算</translation></message>
<message><source>the {part} on the GPU do {share} of the work</source><translation>GPU 上的 {part} 完成了 {share} 的工作</translation></message>
<message><source>{model} is answering</source><translation>{model} 正在回答</translation></message>
<message><source>{model} is answering in “{chat}”</source><translation>{model} 正在“{chat}”中回答</translation></message>
<message><source>{name} load</source><translation>{name} 负载</translation></message>
<message><source>{name}, load</source><translation>{name}，负载</translation></message>
<message><source>{name}, memory</source><translation>{name}，显存</translation></message>
<message><source>{used} of {n}</source><translation>{used} / {n}</translation></message>
<message><source>Couldn't save the report: {why}</source><translation>报告未保存：{why}</translation></message>
<message><source>Hearth is already open</source><translation>Hearth 已打开</translation></message>
<message><source>Hearth is already open.</source><translation>Hearth 已打开。</translation></message>
<message><source>Hearth is already running; its window was brought to the front.</source><translation>Hearth 已在运行，其窗口已移到前面。</translation></message>
<message><source>It does not respond. Wait a moment and try again, or close it first.</source><translation>它目前没有响应。请稍候再启动，或先结束它。</translation></message>
<message><source>Report (*.zip)</source><translation>报告 (*.zip)</translation></message>
<message><source>Report saved</source><translation>报告已保存</translation></message>
<message><source>Save a report</source><translation>保存报告</translation></message>
<message><source>This desktop has no system tray.</source><translation>此桌面没有托盘。</translation></message>
<message><source>an unexpected error; the log has details</source><translation>发生了意料之外的情况；详见日志</translation></message>
<message><source>answering</source><translation>正在回答</translation></message>
<message><source>downloading</source><translation>正在下载</translation></message>
<message><source>preparing a model</source><translation>正在准备模型</translation></message>
<message><source>receiving an answer</source><translation>正在接收回答</translation></message>
<message><source>Access token</source><translation>访问令牌</translation></message>
<message><source>Key of {name}</source><translation>{name} 的密钥</translation></message>
<message><source>Keys in this system's keyring</source><translation>系统密钥环中的密钥</translation></message>
<message><source>Local server</source><translation>本地服务器</translation></message>
<message><source>The keyring did not answer.</source><translation>密钥环没有响应。</translation></message>
<message><source>The rest</source><translation>其余</translation></message>
<message><source>This system's keyring did not delete it.</source><translation>系统密钥环未将其删除。</translation></message>
<message><source>A tool waits for your permission</source><translation>有工具正在等待您的许可</translation></message>
<message><source>Open Hearth to allow or refuse it.</source><translation>打开 Hearth 以允许或拒绝。</translation></message>
<message><source>Open Hearth to see why.</source><translation>打开 Hearth 查看原因。</translation></message>
<message><source>Show</source><translation>显示</translation></message>
<message><source>The answer is ready</source><translation>回答已完成</translation></message>
<message><source>The answer was not finished</source><translation>回答未完成</translation></message>
<message><source>The model</source><translation>模型</translation></message>
<message><source>{model} ended in {time}.</source><translation>{model} 用时 {time} 结束。</translation></message>
<message numerus="yes"><source>{model} wrote {n} tokens in {time}.</source><translation><numerusform>{model} 用 {time} 写了 {n} 个 token。</numerusform></translation></message>
<message><source>Hearth is {reasons}</source><translation>Hearth {reasons}</translation></message>
<message><source>{name} contains no text.</source><translation>{name} 不含文本。</translation></message>
<message><source>Search my documents</source><translation>搜索我的文档</translation></message>
<message><source>Couldn't search the documents. The answer does without them.</source><translation>无法搜索文档。回答时不使用文档。</translation></message>
<message><source>There are {n} folders already. Remove one first.</source><translation>已有 {n} 个文件夹。请先移除一个。</translation></message>
<message><source>{name} is already there</source><translation>{name} 已在列表中</translation></message>
<message><source>{name} is in {folder}, which is already there</source><translation>{name} 位于 {folder} 中，后者已在列表中</translation></message>
<message><source>{name} is no longer searched</source><translation>不再搜索 {name}</translation></message>
<message><source>{name} is not a folder</source><translation>{name} 不是文件夹</translation></message>
<message><source>{name} was not attached. A message can have {most} attachments.</source><translation>未附加 {name}：每条消息最多 {most} 个附件。</translation></message>
<message><source>Couldn't read {name} within {seconds} s. Split it into smaller files.</source><translation>无法在 {seconds} 秒内读取 {name}。请将它拆分为较小的文件。</translation></message>
<message><source>Couldn't read {name}: Hearth doesn't read files of this kind. Save it as PDF, Word (.docx) or text.</source><translation>无法读取 {name}:Hearth 不支持这种文件。请将它另存为 PDF、Word(.docx)或文本。</translation></message>
<message><source>Couldn't read {name}: it contains no text. Choose another file.</source><translation>无法读取 {name}:文件中没有文本。请选择其他文件。</translation></message>
<message><source>Couldn't read {name}: it has {size} MB, and files up to {most} MB are read. Split it.</source><translation>无法读取 {name}:文件大小为 {size} MB,最多读取 {most} MB。请拆分文件。</translation></message>
<message><source>Couldn't read {name}: it is damaged or incomplete. Download it or save it again.</source><translation>无法读取 {name}:文件已损坏或不完整。请重新下载或保存。</translation></message>
<message><source>Couldn't read {name}: it is protected by a password. Save a copy without the password.</source><translation>无法读取 {name}:文件受密码保护。请保存一份不带密码的副本。</translation></message>
<message><source>Couldn't read {name}: its content is too large or too complex. Split it into smaller files.</source><translation>无法读取 {name}:内容过大或过于复杂。请将它拆分为较小的文件。</translation></message>
<message><source>Couldn't read {name}: its pages are images without text, as in a scan. Run text recognition (OCR) on it first.</source><translation>无法读取 {name}:页面是不含文本的图像,例如扫描件。请先进行文字识别(OCR)。</translation></message>
<message><source>Couldn't read {name}: the file no longer exists. Check if it was moved.</source><translation>无法读取 {name}:文件已不存在。请检查它是否被移动。</translation></message>
<message><source>Couldn't read {name}: the process that reads files did not start. Restart Hearth.</source><translation>无法读取 {name}:读取文件的进程未能启动。请重新启动 Hearth。</translation></message>
<message><source>Couldn't read {name}: {why}. Check that you may open it.</source><translation>无法读取 {name}:{why}。请检查您是否有权打开它。</translation></message>
<message><source>{name} is a folder. Choose the files in it.</source><translation>{name} 是一个文件夹。请选择其中的文件。</translation></message>
<message><source>{name} is not a file. Choose a file.</source><translation>{name} 不是文件。请选择一个文件。</translation></message>
<message><source>A downloaded file is damaged. Trying again downloads only that file.</source><translation>下载的一个文件已损坏。重试时只会下载该文件。</translation></message>
<message><source>Another Hearth has been changing the list of models for too long.</source><translation>另一个 Hearth 更改模型列表的时间过长。</translation></message>
<message><source>Another Hearth is downloading.</source><translation>另一个 Hearth 正在下载。</translation></message>
<message><source>Choose another model</source><translation>选择其他模型</translation></message>
<message><source>Couldn't add the model</source><translation>模型未添加</translation></message>
<message><source>Couldn't cancel the download</source><translation>未能取消下载</translation></message>
<message><source>Couldn't check {model}</source><translation>未能检查 {model}</translation></message>
<message><source>Couldn't delete {model}</source><translation>未能删除 {model}</translation></message>
<message><source>Couldn't download the update</source><translation>无法下载更新</translation></message>
<message><source>Couldn't download {model}</source><translation>未能下载 {model}</translation></message>
<message><source>Couldn't estimate {model}</source><translation>未能估算 {model}</translation></message>
<message><source>Couldn't install the update</source><translation>无法安装更新</translation></message>
<message><source>Couldn't look for updates</source><translation>无法检查更新</translation></message>
<message><source>Couldn't move the models</source><translation>未能移动模型</translation></message>
<message><source>Couldn't open {model}</source><translation>无法打开 {model}</translation></message>
<message><source>Couldn't pause the download</source><translation>未能暂停下载</translation></message>
<message><source>Couldn't plan how to prepare {model}</source><translation>无法规划 {model} 的准备工作</translation></message>
<message><source>Couldn't prepare {model}</source><translation>未能准备 {model}</translation></message>
<message><source>Couldn't read the catalogue of models</source><translation>未能读取可选模型</translation></message>
<message><source>Couldn't read the list of downloads</source><translation>未能读取下载列表</translation></message>
<message><source>Couldn't read the list of models on this PC</source><translation>未能读取此电脑上的模型</translation></message>
<message><source>Couldn't read this PC's hardware</source><translation>未能检测此电脑</translation></message>
<message><source>Couldn't remove the download from the list</source><translation>下载仍在列表中</translation></message>
<message><source>Couldn't repair {model}</source><translation>未能修复 {model}</translation></message>
<message><source>Couldn't restore {model}</source><translation>未能恢复 {model}</translation></message>
<message><source>Couldn't resume the download</source><translation>下载未能继续</translation></message>
<message><source>Couldn't save the access token</source><translation>未保存访问令牌</translation></message>
<message><source>Couldn't save the measured speed</source><translation>未能保存速度</translation></message>
<message><source>Couldn't search</source><translation>无法搜索</translation></message>
<message><source>Couldn't store the access token in {place}: {why}.</source><translation>访问令牌无法保存在 {place}：{why}。</translation></message>
<message><source>Couldn't train while the PC was idle</source><translation>空闲时未进行训练</translation></message>
<message><source>Enter a token</source><translation>输入令牌</translation></message>
<message><source>It didn't work. Your chats and models are safe.</source><translation>此操作未完成。您的聊天和模型都安全。</translation></message>
<message><source>It was requested with a value that is not allowed.</source><translation>请求中有不适用的值。</translation></message>
<message><source>Its file {what} has {size}; it had {before} when it was imported.</source><translation>文件 {what} 大小为 {size}；导入时为 {before}。</translation></message>
<message><source>Its file {what} is missing.</source><translation>缺少文件 {what}。</translation></message>
<message><source>Its files were moved or deleted.</source><translation>它的文件已被移动或删除。</translation></message>
<message><source>Its folder {what} is not there. If it is on another disk, connect that.</source><translation>文件夹 {what} 不存在。如果它在另一个磁盘上，请连接该磁盘。</translation></message>
<message><source>Its maker requires you to accept terms. Accept them on the model's page, then enter an access token.</source><translation>作者只提供给接受其条款的人。请在其页面上接受，然后输入访问令牌。</translation></message>
<message><source>Nothing was installed. The details say why.</source><translation>未安装任何内容。原因见详细信息。</translation></message>
<message><source>One of the files is damaged or incomplete. Download it again, or use another model.</source><translation>有文件损坏或不完整。请重新获取，或使用其他模型。</translation></message>
<message><source>Parts of Hearth have different versions. Install Hearth again.</source><translation>窗口与模型管理的版本不同。请重新安装 Hearth。</translation></message>
<message><source>Prepare it once to make it faster on this PC.</source><translation>准备一次，即可在此电脑上运行得更快。</translation></message>
<message><source>The copy of {what} differs from the original.</source><translation>{what} 的副本与原文件不同。</translation></message>
<message><source>The details say why.</source><translation>原因见详细信息。</translation></message>
<message><source>The disk accepted no more data while {what} was written: {why}.</source><translation>写入 {what} 时磁盘已无法再写：{why}。</translation></message>
<message><source>The disk is full. Free some space there, or choose a folder on another disk.</source><translation>磁盘已满。请释放空间，或选择其他磁盘上的文件夹。</translation></message>
<message><source>The disk that holds {what} is full.</source><translation>{what} 所在的磁盘已满。</translation></message>
<message><source>The hub cannot be reached. Connect to the network, or add a model file that is on this PC.</source><translation>无法连接 hub。请连接网络，或导入此电脑上的模型。</translation></message>
<message><source>The hub did not answer properly. What was downloaded is kept. Try again later.</source><translation>hub 应答异常。已下载的内容会保留。请稍后再试。</translation></message>
<message><source>The hub has no model with that name, or it requires an access token. Check the name.</source><translation>hub 上没有此名称，或仅对持有访问令牌者可见。请检查名称。</translation></message>
<message><source>The list of models was written by a newer Hearth: {what} has the version {found}, and this one knows {known}.</source><translation>模型列表由较新的 Hearth 写入：{what} 的版本为 {found}，此版本只认识 {known}。</translation></message>
<message><source>The model is of a kind that Hearth does not run.</source><translation>Hearth 不支持此类模型。</translation></message>
<message><source>The model manager stopped unexpectedly and is restarting.</source><translation>模型管理进程意外停止，正在重新启动。</translation></message>
<message><source>The models are being moved already.</source><translation>模型已在移动中。</translation></message>
<message><source>The models folder could not be used. The details say why.</source><translation>模型文件夹不允许此操作；原因见详细信息。</translation></message>
<message><source>The removed model has been deleted for good.</source><translation>已移除的内容已永久消失。</translation></message>
<message><source>The starter model comes with Hearth and stays.</source><translation>入门模型随 Hearth 提供，会保留。</translation></message>
<message><source>The tokenizer beside the model's weights belongs to another model.</source><translation>权重旁的分词器属于另一个模型。</translation></message>
<message><source>There is a {what} again.</source><translation>{what} 又存在了。</translation></message>
<message><source>There is a {what} in {folder} again.</source><translation>{folder} 中又有了 {what}。</translation></message>
<message><source>There is not enough free memory on the GPU. Close programs that use it.</source><translation>GPU 可用内存不足。请关闭占用它的程序。</translation></message>
<message><source>There is not enough free memory. Close other programs.</source><translation>可用内存不足。请关闭其他程序。</translation></message>
<message><source>Try again</source><translation>重试</translation></message>
<message><source>{fact} Close other programs.</source><translation>{fact} 请关闭其他程序。</translation></message>
<message><source>{fact} Close programs that use the GPU.</source><translation>{fact} 请关闭占用 GPU 的程序。</translation></message>
<message><source>{fact} Free some space there, or choose a folder on another disk.</source><translation>{fact} 请释放空间，或选择其他磁盘上的文件夹。</translation></message>
<message><source>{file} is damaged or incomplete. Download it again, or use another model.</source><translation>{file} 已损坏或不完整。请重新下载，或使用其他模型。</translation></message>
<message><source>{what} cannot be deleted: {why}.</source><translation>无法删除 {what}：{why}。</translation></message>
<message><source>{what} cannot be made: {why}.</source><translation>无法创建 {what}：{why}。</translation></message>
<message><source>{what} cannot be put back: {why}.</source><translation>无法放回 {what}：{why}。</translation></message>
<message><source>{what} cannot be read: {why}.</source><translation>无法读取 {what}：{why}。</translation></message>
<message><source>{what} cannot be written: {why}.</source><translation>无法写入 {what}：{why}。</translation></message>
<message><source>{what} differs from {source}.</source><translation>{what} 与 {source} 不同。</translation></message>
<message><source>{what} exists already.</source><translation>{what} 已存在。</translation></message>
<message><source>{what} is being prepared; one model at a time can be.</source><translation>正在准备 {what}；一次只能准备一个模型。</translation></message>
<message><source>{what} is in the folder of {model}.</source><translation>{what} 位于 {model} 的文件夹中。</translation></message>
<message><source>{what} is not a folder.</source><translation>{what} 不是文件夹。</translation></message>
<message><source>{what} may not be changed: {why}.</source><translation>不允许更改 {what}：{why}。</translation></message>
<message><source>Checking the file</source><translation>正在检查文件</translation></message>
<message><source>Convert</source><translation>转换</translation></message>
<message><source>Converting</source><translation>正在转换</translation></message>
<message><source>Estimates for PCs like this: no GPU, {cores}, {free}</source><translation>针对类似电脑的估算：无 GPU，{cores}，{free}</translation></message>
<message><source>Estimates for PCs like this: {gpu} with {memory} for models, {free}</source><translation>针对类似电脑的估算：{gpu}，模型可用 {memory}，{free}</translation></message>
<message><source>Estimates for this PC: no GPU, {cores}, {free}</source><translation>针对此电脑的估算：无 GPU，{cores}，{free}</translation></message>
<message><source>Estimates for this PC: {gpu} with {memory} for models, {free}</source><translation>针对此电脑的估算：{gpu}，模型可用 {memory}，{free}</translation></message>
<message><source>Needs {need}. This PC has {room} for it.</source><translation>需要 {need}。此电脑可提供 {room}。</translation></message>
<message><source>Needs {size} more and 2 GB to spare; {free} free. Free some space, then resume.</source><translation>还需 {size}，另须留出 2 GB；可用 {free}。请释放空间，然后继续。</translation></message>
<message><source>No estimate</source><translation>无估算</translation></message>
<message><source>Paused</source><translation>已暂停</translation></message>
<message><source>Placement</source><translation>布局</translation></message>
<message><source>Placing</source><translation>正在布局</translation></message>
<message><source>Predictors</source><translation>预测器</translation></message>
<message><source>Profile</source><translation>分析</translation></message>
<message><source>Profiling</source><translation>正在分析</translation></message>
<message><source>Queued</source><translation>排队中</translation></message>
<message><source>Speed unknown</source><translation>速度未知</translation></message>
<message><source>Training predictors</source><translation>正在训练预测器</translation></message>
<message><source>Waiting for the network</source><translation>等待网络</translation></message>
<message><source>about {time}</source><translation>约 {time}</translation></message>
<message><source>does not fit</source><translation>放不下</translation></message>
<message><source>estimated</source><translation>估算</translation></message>
<message><source>experts on the disk</source><translation>专家在磁盘上</translation></message>
<message><source>measured here</source><translation>在此测得</translation></message>
<message><source>once prepared</source><translation>准备后</translation></message>
<message><source>{done} of {total}</source><translation>{done} / {total}</translation></message>
<message><source>{least} to {most}</source><translation>{least} 至 {most}</translation></message>
<message><source>{least} to {most} once prepared</source><translation>准备后 {least} 至 {most}</translation></message>
<message><source>{memory} RAM free</source><translation>可用内存 {memory}</translation></message>
<message><source>{memory} in RAM</source><translation>内存 {memory}</translation></message>
<message><source>{memory} of experts on the disk</source><translation>磁盘上的专家 {memory}</translation></message>
<message><source>{memory} of its experts are read from the disk when they are chosen.</source><translation>其中 {memory} 的专家在被选中时从磁盘读取。</translation></message>
<message><source>{memory} on the GPU</source><translation>GPU {memory}</translation></message>
<message><source>{time} left</source><translation>剩余{time}</translation></message>
<message><source>Broken</source><translation>已损坏</translation></message>
<message><source>CPU only</source><translation>仅 CPU</translation></message>
<message><source>Fits the GPU</source><translation>GPU 可容纳</translation></message>
<message><source>Fits this PC</source><translation>适合本机</translation></message>
<message><source>GPU + CPU</source><translation>GPU + CPU</translation></message>
<message><source>In use</source><translation>使用中</translation></message>
<message><source>Partly on the disk</source><translation>部分在磁盘上</translation></message>
<message><source>Preparing</source><translation>准备中</translation></message>
<message><source>Slow here</source><translation>在此较慢</translation></message>
<message><source>comes with Hearth</source><translation>Hearth 自带</translation></message>
<message><source>{size} too big</source><translation>超出 {size}</translation></message>
<message><source>15 to 40 GB</source><translation>15 至 40 GB</translation></message>
<message><source>5 to 15 GB</source><translation>5 至 15 GB</translation></message>
<message><source>All</source><translation>全部</translation></message>
<message><source>Chat</source><translation>聊天</translation></message>
<message><source>On this PC</source><translation>在此电脑上</translation></message>
<message><source>Recommended</source><translation>推荐</translation></message>
<message><source>Research</source><translation>研究</translation></message>
<message><source>Runs well here</source><translation>在此运行流畅</translation></message>
<message><source>any</source><translation>不限</translation></message>
<message><source>name</source><translation>名称</translation></message>
<message><source>over 40 GB</source><translation>40 GB 以上</translation></message>
<message><source>recommended</source><translation>推荐</translation></message>
<message><source>size</source><translation>大小</translation></message>
<message><source>speed here</source><translation>在此的速度</translation></message>
<message><source>up to 5 GB</source><translation>5 GB 以内</translation></message>
<message><source>Load {model}</source><translation>加载 {model}</translation></message>
<message><source>the starter model</source><translation>入门模型</translation></message>
<message><source>{name} will be loaded after this answer</source><translation>{name} 将在此回答后加载</translation></message>
<message><source>{name} will be unloaded after this answer</source><translation>{name} 将在此回答后卸载</translation></message>
<message><source>{name} added</source><translation>已添加 {name}</translation></message>
<message><source>{name} deleted</source><translation>已删除 {name}</translation></message>
<message><source>{name} removed</source><translation>已移除 {name}</translation></message>
<message><source>Another model is being prepared: stop that first, or wait</source><translation>正在准备另一个模型：请先停止或等待</translation></message>
<message><source>{name} is prepared for this PC</source><translation>{name} 已为此电脑准备好</translation></message>
<message><source>A program</source><translation>程序</translation></message>
<message><source>Couldn't load {model}, which {client} asked for</source><translation>无法加载 {client} 请求的 {model}</translation></message>
<message><source>{client} asked for {model}, which is being loaded</source><translation>{client} 请求了 {model}，正在加载</translation></message>
<message><source>{model} was unloaded, because nothing used it for a while</source><translation>{model} 闲置了一段时间，已被卸载</translation></message>
<message><source>No keyring is available: the key is kept until Hearth is closed</source><translation>此处无法使用密钥环：密钥在 Hearth 关闭前有效</translation></message>
<message><source>The key is kept until Hearth is closed</source><translation>密钥保留到 Hearth 关闭</translation></message>
<message><source>0 always takes the likeliest word; higher is more varied.</source><translation>0 总是取最可能的词；越高越多样。</translation></message>
<message><source>A program may name any model on this PC, which is then loaded in place of the current one, after a running answer.</source><translation>程序可以指定这台电脑上的任何模型。正在进行的回答结束后，该模型会取代当前模型被加载。</translation></message>
<message><source>Above 1, words that were just used become less likely.</source><translation>大于 1 时，刚用过的词更不易出现。</translation></message>
<message><source>Advanced</source><translation>高级</translation></message>
<message><source>After this long without messages or requests, the model is unloaded. The next one loads it again. Needs “Load models on request”.</source><translation>这段时间内没有消息和请求时，模型会从内存中卸载，下一次消息或请求会重新加载它。需要开启“按请求加载模型”。</translation></message>
<message><source>An answer ends here at the latest.</source><translation>回答最多写到这里。</translation></message>
<message><source>Answers</source><translation>回答</translation></message>
<message><source>Appearance</source><translation>外观</translation></message>
<message><source>Automatic</source><translation>自动</translation></message>
<message><source>CPU threads that work on an answer.</source><translation>参与回答的处理器核心数。</translation></message>
<message><source>Change it if another program uses this port.</source><translation>如其他程序占用此端口，请更改。</translation></message>
<message><source>Closing the window then leaves Hearth in the tray; Ctrl Q ends it.</source><translation>关闭窗口后 Hearth 留在托盘；Ctrl Q 退出。</translation></message>
<message><source>Contrast</source><translation>对比度</translation></message>
<message><source>Ctrl + and Ctrl - work everywhere.</source><translation>随处可用 Ctrl + 和 Ctrl -。</translation></message>
<message><source>Dark</source><translation>深色</translation></message>
<message><source>Deutsch</source><translation>Deutsch</translation></message>
<message><source>Engine</source><translation>引擎</translation></message>
<message><source>Engine runs in</source><translation>引擎运行于</translation></message>
<message><source>English</source><translation>English</translation></message>
<message><source>For other programs</source><translation>供其他程序使用</translation></message>
<message><source>Further requests wait. Each one needs memory of its own, so the model is loaded again if you change this.</source><translation>其余请求会排队等待。每个请求都需要各自的内存，因此更改此项会重新加载模型。</translation></message>
<message><source>GB</source><translation>GB</translation></message>
<message><source>GPU</source><translation>GPU</translation></message>
<message><source>GPU memory</source><translation>GPU 显存</translation></message>
<message><source>Hearth saves the work of reading your chats, up to this size. A long chat then continues at once after a restart. At 0, nothing is saved.</source><translation>Hearth 会保存阅读对话的结果，最多占用此大小。重启后，长对话可立即继续。设为 0 则不保存。</translation></message>
<message><source>High makes text and borders stronger.</source><translation>高对比度会加重文字和边框。</translation></message>
<message><source>How much of a chat the model sees. More takes more memory.</source><translation>模型能看到多少聊天内容。越多占用内存越多。</translation></message>
<message><source>How much of it a model may use. Automatic leaves some for other programs.</source><translation>模型最多可用多少。自动会为其他程序留出一些。</translation></message>
<message><source>How words are chosen, in the preset Balanced</source><translation>如何选词（预设“均衡”）</translation></message>
<message><source>In its own process, a failure of the engine does not close the window.</source><translation>在独立进程中，引擎出错不会关闭窗口。</translation></message>
<message><source>In the background</source><translation>后台</translation></message>
<message><source>Its own process</source><translation>独立进程</translation></message>
<message><source>Keep chats ready</source><translation>保持对话就绪</translation></message>
<message><source>Keep this PC awake</source><translation>保持此电脑唤醒</translation></message>
<message><source>Keeps the probability, alternatives and cost of each token with new answers. “Inspect tokens” in an answer's menu shows them.</source><translation>随新回答保存每个 token 的概率、备选和开销。回答菜单中的“检查 token”会显示它们。</translation></message>
<message><source>Language</source><translation>语言</translation></message>
<message><source>Leaves out tokens below this share of the likeliest one; 0 leaves out none.</source><translation>排除概率低于最可能 token 此比例的 token；0 表示不排除。</translation></message>
<message><source>Lets other programs on this PC use the loaded model through OpenAI's API. Nothing outside this PC can reach it, and every program needs the key.</source><translation>让此电脑上的其他程序通过 OpenAI 的 API 使用已加载的模型。此电脑之外无法访问，且每个程序都需要密钥。</translation></message>
<message><source>Light</source><translation>浅色</translation></message>
<message><source>Light, dark, or like the desktop.</source><translation>浅色、深色，或跟随桌面。</translation></message>
<message><source>Load models on request</source><translation>按请求加载模型</translation></message>
<message><source>Longest answer</source><translation>最长回答</translation></message>
<message><source>Longest thought</source><translation>最长思考</translation></message>
<message><source>Min p</source><translation>Min p</translation></message>
<message><source>Motion</source><translation>动画</translation></message>
<message><source>Never</source><translation>从不</translation></message>
<message><source>New each time</source><translation>每次新取</translation></message>
<message><source>No limit</source><translation>不限</translation></message>
<message><source>Notifications</source><translation>通知</translation></message>
<message><source>Only the k likeliest tokens are considered; 0 considers all.</source><translation>只考虑最可能的 k 个 token；0 表示全部。</translation></message>
<message><source>Only the likeliest tokens that together reach this share; 1 considers all.</source><translation>只考虑累计达到此比例的最可能 token；1 表示全部。</translation></message>
<message><source>Port</source><translation>端口</translation></message>
<message><source>Record tokens</source><translation>记录 token</translation></message>
<message><source>Reduced</source><translation>减少</translation></message>
<message><source>Reduced animates progress only.</source><translation>减少后只有进度会动。</translation></message>
<message><source>Repeat penalty</source><translation>重复惩罚</translation></message>
<message><source>Requests at once</source><translation>同时处理的请求数</translation></message>
<message><source>Runs on</source><translation>运行于</translation></message>
<message><source>Seed</source><translation>种子</translation></message>
<message><source>Sparse computes the neurons that predictors expect to be active, and needs a model with predictors. Exact skips inactive neurons, with the same result. Dense computes every one.</source><translation>稀疏：只计算模型预测器预期的神经元，模型需自带预测器。精确：跳过未激活的神经元，结果相同。稠密：全部计算。</translation></message>
<message><source>Stay in the tray</source><translation>留在托盘</translation></message>
<message><source>System</source><translation>系统</translation></message>
<message><source>Takes effect after a restart.</source><translation>重启后生效。</translation></message>
<message><source>Temperature</source><translation>温度</translation></message>
<message><source>Text size</source><translation>文字大小</translation></message>
<message><source>The model reads them before every chat without a persona. Small models may not follow them.</source><translation>在没有角色的聊天开始前告诉模型。小模型可能不会遵守。</translation></message>
<message><source>The model stops thinking after this many tokens and answers.</source><translation>达到这么多 token 后，模型停止思考并作答。</translation></message>
<message><source>The model's own</source><translation>模型自带</translation></message>
<message><source>The same seed and the same question give the same answer.</source><translation>相同的种子和问题会得到相同的回答。</translation></message>
<message><source>The window's process</source><translation>窗口进程</translation></message>
<message><source>Theme</source><translation>主题</translation></message>
<message><source>Threads</source><translation>线程</translation></message>
<message><source>Top k</source><translation>Top k</translation></message>
<message><source>Top p</source><translation>Top p</translation></message>
<message><source>Unload after</source><translation>闲置后卸载</translation></message>
<message><source>When a long answer ends while Hearth is in the background. They contain no chat text.</source><translation>Hearth 在后台时，长回答结束后通知。通知不含聊天内容。</translation></message>
<message><source>While it answers, downloads or prepares a model.</source><translation>在回答、下载或准备模型期间。</translation></message>
<message><source>With the GPU, busy neurons run there and the others on the CPU at the same time. Automatic uses the GPU if it can.</source><translation>使用 GPU 时，高频神经元在其上运行，其余同时在 CPU 上运行。自动会尽量使用 GPU。</translation></message>
<message><source>min</source><translation>分钟</translation></message>
<message><source>px</source><translation>px</translation></message>
<message><source>tokens</source><translation>个 token</translation></message>
<message><source>{name} has no value.</source><translation>{name} 没有值。</translation></message>
<message><source>简体中文</source><translation>简体中文</translation></message>
<message><source>About Hearth</source><translation>关于 Hearth</translation></message>
<message><source>Add a model file</source><translation>添加模型文件</translation></message>
<message><source>Add a model folder</source><translation>添加模型文件夹</translation></message>
<message><source>Add a server</source><translation>添加服务器</translation></message>
<message><source>Add an MCP server</source><translation>添加 MCP 服务器</translation></message>
<message><source>Adjust sampling</source><translation>调整采样</translation></message>
<message><source>Alt</source><translation>Alt</translation></message>
<message><source>Answer again</source><translation>重新回答</translation></message>
<message><source>Answer again with another model</source><translation>换一个模型重新回答</translation></message>
<message><source>Arrow down</source><translation>下箭头</translation></message>
<message><source>Arrow up</source><translation>上箭头</translation></message>
<message><source>Attach files</source><translation>附加文件</translation></message>
<message><source>Bin of deleted chats</source><translation>已删除对话的回收站</translation></message>
<message><source>Blind votes</source><translation>盲评</translation></message>
<message><source>Chat above</source><translation>上一个聊天</translation></message>
<message><source>Chat below</source><translation>下一个聊天</translation></message>
<message><source>Chats</source><translation>聊天</translation></message>
<message><source>Choose a model</source><translation>选择模型</translation></message>
<message><source>Compare models</source><translation>比较模型</translation></message>
<message><source>Compare with dense</source><translation>与稠密比较</translation></message>
<message><source>Continue the answer</source><translation>继续回答</translation></message>
<message><source>Copy the last answer</source><translation>复制最后的回答</translation></message>
<message><source>Copy the selected text</source><translation>复制所选文本</translation></message>
<message><source>Copy this chat as Markdown</source><translation>将此聊天复制为 Markdown</translation></message>
<message><source>Ctrl</source><translation>Ctrl</translation></message>
<message><source>Dark theme</source><translation>深色主题</translation></message>
<message><source>Del</source><translation>Del</translation></message>
<message><source>Delete everything…</source><translation>全部删除…</translation></message>
<message><source>Delete the chat</source><translation>删除聊天</translation></message>
<message><source>Delete this chat</source><translation>删除此聊天</translation></message>
<message><source>Documents</source><translation>文档</translation></message>
<message><source>Edit personas</source><translation>编辑角色</translation></message>
<message><source>Edit presets</source><translation>编辑预设</translation></message>
<message><source>Edit prompts</source><translation>编辑提示词</translation></message>
<message><source>Edit the last message</source><translation>编辑上一条消息</translation></message>
<message><source>Enter</source><translation>Enter</translation></message>
<message><source>Export all chats as JSON</source><translation>将所有聊天导出为 JSON</translation></message>
<message><source>Export all chats as Markdown</source><translation>将所有聊天导出为 Markdown</translation></message>
<message><source>Export the tokens of the last answer</source><translation>导出上一个回答的 token</translation></message>
<message><source>Export this chat as JSON</source><translation>将此聊天导出为 JSON</translation></message>
<message><source>Export this chat as Markdown</source><translation>将此聊天导出为 Markdown</translation></message>
<message><source>Export this chat as PDF</source><translation>将此对话导出为 PDF</translation></message>
<message><source>Export this chat as a web page</source><translation>将此对话导出为网页</translation></message>
<message><source>Find anything</source><translation>查找一切</translation></message>
<message><source>Find in this chat</source><translation>在此对话中查找</translation></message>
<message><source>How it runs here</source><translation>运行方式</translation></message>
<message><source>Import chats</source><translation>导入聊天</translation></message>
<message><source>Insert a saved prompt</source><translation>插入已保存的提示词</translation></message>
<message><source>Inspect tokens</source><translation>检查 token</translation></message>
<message><source>Instructions for this chat…</source><translation>此对话的指令…</translation></message>
<message><source>Keyboard shortcuts</source><translation>键盘快捷键</translation></message>
<message><source>Larger</source><translation>放大</translation></message>
<message><source>Light theme</source><translation>浅色主题</translation></message>
<message><source>Live</source><translation>实时</translation></message>
<message><source>Load the last model</source><translation>加载上次的模型</translation></message>
<message><source>Models</source><translation>模型</translation></message>
<message><source>Move the models folder</source><translation>移动模型文件夹</translation></message>
<message><source>Move this chat to a folder</source><translation>将此聊天移到文件夹</translation></message>
<message><source>New chat in this project</source><translation>在此项目中新建对话</translation></message>
<message><source>New line</source><translation>换行</translation></message>
<message><source>New project…</source><translation>新建项目…</translation></message>
<message><source>Next match</source><translation>下一个匹配</translation></message>
<message><source>Open or close the sidebar</source><translation>打开或关闭侧栏</translation></message>
<message><source>Open the folder of your chats</source><translation>打开您的对话文件夹</translation></message>
<message><source>Page down</source><translation>Page Down</translation></message>
<message><source>Page up</source><translation>Page Up</translation></message>
<message><source>Pages</source><translation>页面</translation></message>
<message><source>Pin or unpin this chat</source><translation>固定或取消固定此聊天</translation></message>
<message><source>Preset, persona, neurons</source><translation>预设、角色、神经元</translation></message>
<message><source>Previous match</source><translation>上一个匹配</translation></message>
<message><source>Print this chat</source><translation>打印此对话</translation></message>
<message><source>Privacy</source><translation>隐私</translation></message>
<message><source>Project settings…</source><translation>项目设置…</translation></message>
<message><source>Quit Hearth</source><translation>退出 Hearth</translation></message>
<message><source>Record tokens in this chat, or stop</source><translation>开始或停止记录此对话的 token</translation></message>
<message><source>Refresh the models</source><translation>刷新模型</translation></message>
<message><source>Rename the chat or folder</source><translation>重命名聊天或文件夹</translation></message>
<message><source>Rename this chat</source><translation>重命名此聊天</translation></message>
<message><source>Search all chats</source><translation>搜索所有聊天</translation></message>
<message><source>Select the message, then the chat</source><translation>先选择消息，再选择整个对话</translation></message>
<message><source>Send</source><translation>发送</translation></message>
<message><source>Settings</source><translation>设置</translation></message>
<message><source>Shift</source><translation>Shift</translation></message>
<message><source>Show more of a folded text</source><translation>显示更多折叠文本</translation></message>
<message><source>Show the log</source><translation>显示日志</translation></message>
<message><source>Smaller</source><translation>缩小</translation></message>
<message><source>Stop loading the model</source><translation>停止加载模型</translation></message>
<message><source>Stop the answer</source><translation>停止回答</translation></message>
<message><source>System prompt and persona</source><translation>系统提示词与角色</translation></message>
<message><source>Test this PC</source><translation>测试这台电脑</translation></message>
<message><source>Theme of the desktop</source><translation>跟随桌面主题</translation></message>
<message><source>Thinking level</source><translation>思考程度</translation></message>
<message><source>Unload the model</source><translation>卸载模型</translation></message>
<message><source>Updates</source><translation>更新</translation></message>
<message><source>Usual size</source><translation>默认大小</translation></message>
<message><source>Versions side by side</source><translation>并排显示各版本</translation></message>
<message><source>Window</source><translation>窗口</translation></message>
<message><source>add new instructions import export</source><translation>添加 新建 指令 导入 导出</translation></message>
<message><source>add new sampling temperature import export</source><translation>添加 新建 采样 温度 导入 导出</translation></message>
<message><source>api openai other programs port key</source><translation>api openai 其他程序 端口 密钥</translation></message>
<message><source>appearance colours bright</source><translation>外观 颜色 明亮</translation></message>
<message><source>appearance colours night</source><translation>外观 颜色 夜间</translation></message>
<message><source>appearance colours system</source><translation>外观 颜色 系统</translation></message>
<message><source>begin start conversation</source><translation>开始 新建 对话</translation></message>
<message><source>bring back</source><translation>恢复</translation></message>
<message><source>cancel load</source><translation>取消 加载</translation></message>
<message><source>clipboard</source><translation>剪贴板</translation></message>
<message><source>command palette</source><translation>命令 面板</translation></message>
<message><source>disk storage path where</source><translation>磁盘 存储 路径 位置</translation></message>
<message><source>download catalogue</source><translation>下载 目录</translation></message>
<message><source>erase reset remove stored data privacy</source><translation>删除 重置 清除 存储 数据 隐私</translation></message>
<message><source>exit close</source><translation>退出 关闭</translation></message>
<message><source>file sort</source><translation>归档 整理</translation></message>
<message><source>find again search</source><translation>继续查找 搜索</translation></message>
<message><source>find search</source><translation>查找 搜索</translation></message>
<message><source>find text messages</source><translation>查找 文本 消息</translation></message>
<message><source>folder begin start conversation</source><translation>文件夹 开始 新建 对话</translation></message>
<message><source>folder create</source><translation>文件夹 创建</translation></message>
<message><source>folder instructions notes tools</source><translation>文件夹 指令 笔记 工具</translation></message>
<message><source>free memory stop</source><translation>释放 内存 停止</translation></message>
<message><source>full drop oldest window tokens</source><translation>已满 丢弃 最旧 窗口 token</translation></message>
<message><source>gguf import open own</source><translation>gguf 导入 打开 自有</translation></message>
<message><source>go on write more</source><translation>继续 接着写</translation></message>
<message><source>graphs gpu neurons monitor</source><translation>图表 gpu 神经元 监控</translation></message>
<message><source>help bug problem</source><translation>帮助 错误 问题</translation></message>
<message><source>help bug problem folder</source><translation>帮助 错误 问题 文件夹</translation></message>
<message><source>help keys</source><translation>帮助 按键</translation></message>
<message><source>help self report diagnostics benchmark</source><translation>帮助 自检 报告 诊断 测速</translation></message>
<message><source>hub hugging face login key add</source><translation>hub hugging face 登录 密钥 添加</translation></message>
<message><source>import open own safetensors bundle</source><translation>导入 打开 自有 safetensors bundle</translation></message>
<message><source>in a very long message</source><translation>在很长的消息中</translation></message>
<message><source>in an empty message</source><translation>在空消息中</translation></message>
<message><source>in the list of chats</source><translation>在聊天列表中</translation></message>
<message><source>in the message</source><translation>在消息中</translation></message>
<message><source>in the messages</source><translation>在消息中</translation></message>
<message><source>instructions role</source><translation>指令 角色</translation></message>
<message><source>keep on top</source><translation>置顶</translation></message>
<message><source>look again reload list</source><translation>重新查找 重新加载 列表</translation></message>
<message><source>model gpu memory placement layers</source><translation>模型 gpu 显存 分布 层</translation></message>
<message><source>my folders files pdf search sources knowledge</source><translation>我的 文件夹 文件 pdf 搜索 来源 知识</translation></message>
<message><source>newer version install upgrade back</source><translation>新版本 安装 升级 回退</translation></message>
<message><source>next</source><translation>下一个</translation></message>
<message><source>open file json zip restore chatgpt claude lm studio jan open webui gpt4all</source><translation>打开 文件 json zip 恢复 chatgpt claude lm studio jan open webui gpt4all</translation></message>
<message><source>openai api remote ollama lm studio llama.cpp</source><translation>openai api 远程 ollama lm studio llama.cpp</translation></message>
<message><source>paper printer preview page</source><translation>纸张 打印机 预览 页面</translation></message>
<message><source>pdf document text open</source><translation>pdf 文档 文本 打开</translation></message>
<message><source>preferences options</source><translation>首选项 选项</translation></message>
<message><source>previous</source><translation>上一个</translation></message>
<message><source>probability alternatives prompt ids neurons</source><translation>概率 备选 提示 编号 神经元</translation></message>
<message><source>reasoning effort off</source><translation>推理 思考 关闭</translation></message>
<message><source>regenerate retry last</source><translation>重新生成 重试 上一条</translation></message>
<message><source>regenerate switch compare</source><translation>重新生成 切换 比较</translation></message>
<message><source>remove</source><translation>移除</translation></message>
<message><source>restore undelete trash recycle empty</source><translation>恢复 还原 垃圾桶 清空</translation></message>
<message><source>sampling mode sparse exact</source><translation>采样 模式 稀疏 精确</translation></message>
<message><source>save file</source><translation>保存 文件</translation></message>
<message><source>save file backup</source><translation>保存 文件 备份</translation></message>
<message><source>save file html browser</source><translation>保存 文件 html 浏览器</translation></message>
<message><source>save file print</source><translation>保存 文件 打印</translation></message>
<message><source>save folder files</source><translation>保存 文件夹 文件</translation></message>
<message><source>search text messages words</source><translation>搜索 文本 消息 词语</translation></message>
<message><source>slash add new template import export</source><translation>斜杠 添加 新建 模板 导入 导出</translation></message>
<message><source>slash template snippet library variables</source><translation>斜杠 模板 片段 库 变量</translation></message>
<message><source>speed neurons sparse exact</source><translation>速度 神经元 稀疏 精确</translation></message>
<message><source>switch load</source><translation>切换 加载</translation></message>
<message><source>system prompt without persona</source><translation>系统提示词 无角色</translation></message>
<message><source>temperature top p seed stop</source><translation>温度 top p 种子 停止</translation></message>
<message><source>title</source><translation>标题</translation></message>
<message><source>tools program call model context protocol</source><translation>工具 程序 调用 model context protocol</translation></message>
<message><source>version licence</source><translation>版本 许可</translation></message>
<message><source>what leaves this pc network stored</source><translation>哪些 离开 本机 网络 存储</translation></message>
<message><source>where stored data backup</source><translation>存储 位置 数据 备份</translation></message>
<message><source>while it is written</source><translation>书写期间</translation></message>
<message><source>zoom in text size</source><translation>放大 缩放 字号</translation></message>
<message><source>zoom out text size</source><translation>缩小 缩放 字号</translation></message>
<message><source>zoom reset text size</source><translation>重置 缩放 字号</translation></message>
<message><source>All chats with their attachments and drafts, the bin, the notes of projects in Hearth's folder, and the chats kept ready to continue</source><translation>所有对话及其附件和草稿、回收站、Hearth 文件夹中的项目笔记，以及为继续而保留的对话</translation></message>
<message><source>Compiled code for this PC</source><translation>为此电脑编译的代码</translation></message>
<message><source>Downloaded and copied models. Models used in place, such as those of LM Studio or Ollama, stay</source><translation>已下载和已复制的模型。就地使用的模型（如 LM Studio 或 Ollama 的）会保留</translation></message>
<message><source>Hearth makes it again at the next start, in about a minute</source><translation>下次启动会重新生成，约需一分钟</translation></message>
<message><source>Index of documents</source><translation>文档索引</translation></message>
<message><source>It could not be deleted at first.</source><translation>起初无法删除。</translation></message>
<message><source>Logs and crash notes</source><translation>日志和崩溃记录</translation></message>
<message><source>Only the link to it was deleted.</source><translation>只删除了指向它的链接。</translation></message>
<message><source>Parts of models that are still being downloaded, and updates of Hearth</source><translation>仍在下载的模型部分，以及 Hearth 的更新</translation></message>
<message><source>Prepared data</source><translation>准备好的数据</translation></message>
<message><source>Servers and keys</source><translation>服务器与密钥</translation></message>
<message><source>Settings, personas, presets, saved prompts, settings of projects and choices for models</source><translation>设置、角色、预设、已保存的提示词、项目设置以及对模型的选择</translation></message>
<message><source>The list of your folders of documents, and the text of their files, to be searched. The documents themselves stay</source><translation>您的文档文件夹列表及其文件的文本，用于搜索。文档本身会保留</translation></message>
<message><source>The servers that you added; keys and the access token, also in this system's keyring</source><translation>您添加的服务器；密钥和访问令牌，包括系统密钥环中的</translation></message>
<message><source>Unfinished downloads</source><translation>未完成的下载</translation></message>
<message><source>What Hearth did. They hold no text of a chat</source><translation>Hearth 的运行记录。不含聊天文字</translation></message>
<message><source>What preparing made for this PC, and measured speeds</source><translation>为此电脑准备的数据和测得的速度</translation></message>
<message><source>Calculator</source><translation>计算器</translation></message>
<message><source>That MCP server was removed or switched off.</source><translation>该 MCP 服务器已被移除或关闭。</translation></message>
<message><source>The call was cancelled.</source><translation>调用已取消。</translation></message>
<message><source>The tool {name} is not available.</source><translation>工具 {name} 不可用。</translation></message>
<message><source>{server} changed the tool {tool} since you approved it. Look at its tools and approve it again.</source><translation>自您批准以来，{server} 更改了工具 {tool}。请查看其工具并重新批准。</translation></message>
<message><source>{server} no longer offers the tool {tool}.</source><translation>{server} 不再提供工具 {tool}。</translation></message>
<message><source>{tool} of {server}</source><translation>{server} 的 {tool}</translation></message>
<message><source>Its last lines:</source><translation>其最后几行输出：</translation></message>
<message><source>no reason was given</source><translation>没有给出原因</translation></message>
<message><source>{name} answered with HTTP status {status}.</source><translation>{name} 返回了 HTTP 状态 {status}。</translation></message>
<message><source>{name} answered with HTTP status {status}: it requires a key. Enter it as a header of the server.</source><translation>{name} 返回了 HTTP 状态 {status}：它需要密钥。请将密钥填写为该服务器的请求头。</translation></message>
<message><source>{name} answered with an error: {why}</source><translation>{name} 返回了错误：{why}</translation></message>
<message><source>{name} closed its output and was stopped.</source><translation>{name} 关闭了输出，已被停止。</translation></message>
<message><source>{name} could not be reached at {host}: {why}.</source><translation>无法在 {host} 连接到 {name}：{why}。</translation></message>
<message><source>{name} could not be started: {why}.</source><translation>无法启动 {name}：{why}。</translation></message>
<message><source>{name} defines too many tools, or too long ones: more than {n} or {chars} characters.</source><translation>{name} 定义的工具过多或过长：超过 {n} 个或 {chars} 个字符。</translation></message>
<message><source>{name} did not answer within {n} s.</source><translation>{name} 在 {n} 秒内没有回答。</translation></message>
<message><source>{name} ended with code {code}.</source><translation>{name} 已结束，代码为 {code}。</translation></message>
<message><source>{name} sent a message without end and was stopped.</source><translation>{name} 发送了没有结尾的消息，已被停止。</translation></message>
<message><source>{name} violated the protocol: {why}</source><translation>{name} 的回答不符合协议：{why}</translation></message>
<message><source>{name} was stopped.</source><translation>{name} 已停止。</translation></message>
<message><source>The command {command} of {name} was not found. Install it, or enter its full path.</source><translation>未找到 {name} 的命令 {command}。请安装它，或输入其完整路径。</translation></message>
<message><source>An address must not contain a name or password. Enter a header instead.</source><translation>地址不能包含用户名和密码。请改为填写请求头。</translation></message>
<message><source>Couldn't read {name}: {why}.</source><translation>无法读取 {name}：{why}。</translation></message>
<message><source>Hearth keeps at most {n} MCP servers. Remove one first.</source><translation>Hearth 最多保存 {n} 个 MCP 服务器。请先移除一个。</translation></message>
<message><source>MCP server</source><translation>MCP 服务器</translation></message>
<message><source>That is not the address of an MCP server. Write it like https://example.org/mcp.</source><translation>这不是 MCP 服务器的地址。请按 https://example.org/mcp 的格式填写。</translation></message>
<message><source>The entry is damaged.</source><translation>该条目已损坏。</translation></message>
<message><source>The entry of {name} is too long or damaged.</source><translation>{name} 的条目过长或已损坏。</translation></message>
<message><source>{folder} contains Hearth's own files or all of yours. Choose a folder inside it.</source><translation>{folder} 包含 Hearth 自己的文件或您的全部文件。请选择其中的一个文件夹。</translation></message>
<message><source>{folder} is not the full path of a folder.</source><translation>{folder} 不是文件夹的完整路径。</translation></message>
<message><source>{host} is not in this PC's own network, and http is not encrypted. Use https.</source><translation>{host} 不在此电脑自己的网络中，而 http 未加密。请使用 https。</translation></message>
<message><source>{name} has a header that HTTP does not allow.</source><translation>{name} 含有 HTTP 不允许的请求头。</translation></message>
<message><source>{name} has a variable whose name is not made of letters, digits and _.</source><translation>{name} 含有一个变量，其名称不是由字母、数字和 _ 组成。</translation></message>
<message><source>{name} has neither a command nor an address.</source><translation>{name} 既没有命令也没有地址。</translation></message>
<message><source>{name} has no command.</source><translation>{name} 没有命令。</translation></message>
<message><source>{name} is not an MCP server that Hearth can use.</source><translation>{name} 不是 Hearth 可以使用的 MCP 服务器。</translation></message>
<message><source>{name} lists no MCP servers.</source><translation>{name} 中没有列出 MCP 服务器。</translation></message>
<message><source>{name} uses the old SSE transport, which Hearth does not support.</source><translation>{name} 使用旧的 SSE 传输方式，Hearth 不支持。</translation></message>
<message><source>This server</source><translation>此服务器</translation></message>
<message><source>Propose a note</source><translation>建议笔记</translation></message>
<message><source>At least {least}.</source><translation>至少 {least}。</translation></message>
<message><source>At most {most}.</source><translation>至多 {most}。</translation></message>
<message><source>Enter a number.</source><translation>请输入一个数。</translation></message>
<message><source>Enter a whole number.</source><translation>请输入一个整数。</translation></message>
<message><source>Fill this in.</source><translation>请填写此项。</translation></message>
<message><source>Write it as {example}.</source><translation>请按 {example} 的格式填写。</translation></message>
<message><source>Read web pages</source><translation>阅读网页</translation></message>
<message><source>this address</source><translation>此地址</translation></message>
<message><source>Web search</source><translation>网页搜索</translation></message>
<message><source>Back to the chat</source><translation>返回聊天</translation></message>
<message><source>Comes next</source><translation>稍后</translation></message>
<message><source>Continue with this one</source><translation>用这个继续</translation></message>
<message><source>Copy answer</source><translation>复制回答</translation></message>
<message><source>The chat continues with this one</source><translation>聊天将以此继续</translation></message>
<message numerus="yes"><source>{n} answers to this question</source><translation><numerusform>此问题有 {n} 个回答</numerusform></translation></message>
<message><source>Personas</source><translation>角色</translation></message>
<message><source>Presets</source><translation>预设</translation></message>
<message><source>Prompts</source><translation>提示词</translation></message>
<message><source>Results of a comparison (*.jsonl)</source><translation>比较结果 (*.jsonl)</translation></message>
<message><source>the model decides</source><translation>由模型决定</translation></message>
<message><source>{built_in} built in</source><translation>{built_in} 个内置</translation></message>
<message><source>{name}, changed</source><translation>{name}，已更改</translation></message>
<message><source>{own} of yours, {built_in} built in</source><translation>{own} 个自建，{built_in} 个内置</translation></message>
<message><source>Couldn't attach that</source><translation>未能附加</translation></message>
<message><source>A server gave this answer. Hearth records tokens only of answers from this PC.</source><translation>此回答来自服务器。Hearth 只记录本机回答的 token。</translation></message>
<message><source>Couldn't write {name}: {why}</source><translation>无法写入 {name}：{why}</translation></message>
<message><source>Export the tokens</source><translation>导出 token</translation></message>
<message><source>JSON lines (*.jsonl)</source><translation>JSON 行 (*.jsonl)</translation></message>
<message><source>No tokens recorded</source><translation>没有记录 token</translation></message>
<message><source>Recording is on in this chat. Answer again to inspect the tokens.</source><translation>此对话已开启记录。重新回答即可检查 token。</translation></message>
<message><source>The tokens of the last answer were not recorded</source><translation>上一个回答的 token 没有记录</translation></message>
<message><source>To continue from one of them, load the model and wait until no answer is being written.</source><translation>要从其中一个继续，请加载模型并等待回答写完。</translation></message>
<message><source>To continue from one of them, load {model}, which wrote this answer.</source><translation>要从其中一个继续，请加载写下此回答的 {model}。</translation></message>
<message><source>Tokens exported to {name}</source><translation>token 已导出到 {name}</translation></message>
<message><source>Turn on recording for this chat, then answer again.</source><translation>为此对话开启记录，然后重新回答。</translation></message>
<message><source>Answer copied</source><translation>已复制回答</translation></message>
<message><source>Chat copied as Markdown</source><translation>已将聊天复制为 Markdown</translation></message>
<message><source>Chat menu</source><translation>聊天菜单</translation></message>
<message><source>Copy chat as Markdown</source><translation>将聊天复制为 Markdown</translation></message>
<message><source>Delete</source><translation>删除</translation></message>
<message><source>Open</source><translation>打开</translation></message>
<message><source>Open this link in your browser?</source><translation>在浏览器中打开此链接？</translation></message>
<message><source>Rename</source><translation>重命名</translation></message>
<message><source>Stay</source><translation>留在此处</translation></message>
<message><source>Add</source><translation>添加</translation></message>
<message><source>Cancel</source><translation>取消</translation></message>
<message><source>Compare</source><translation>比较</translation></message>
<message><source>Each model answers the same question, one after another. All answers stay in this chat as versions.</source><translation>每个模型依次回答同一个问题。所有回答都作为版本保留在此聊天中。</translation></message>
<message><source>Remove</source><translation>移除</translation></message>
<message><source>The whole chat is sent to {server}, not on this PC.</source><translation>整个聊天将发送到 {server}，不在此电脑上。</translation></message>
<message><source>Two rows are the same. Choose another model or mode for one of them.</source><translation>有两行相同。请为其中一行选择其他模型或模式。</translation></message>
<message><source>No models on this PC yet.</source><translation>此电脑上还没有模型。</translation></message>
<message><source>Write a message first</source><translation>请先写消息</translation></message>
<message><source>A question</source><translation>一个问题</translation></message>
<message><source>A small sum</source><translation>一道小算术</translation></message>
<message><source>A story</source><translation>一个故事</translation></message>
<message><source>Nothing leaves this computer unless you allow a tool to send it.</source><translation>除非您允许工具发送，否则任何内容都不会离开这台电脑。</translation></message>
<message><source>Nothing you type leaves this computer.</source><translation>您输入的内容不会离开此电脑。</translation></message>
<message><source>Ready when you are</source><translation>准备就绪</translation></message>
<message><source>Tell me a story about a small fox</source><translation>Tell me a story about a small fox</translation></message>
<message><source>This is a base model: it continues text rather than answering.</source><translation>这是基础模型：它会续写文本，而不是回答问题。</translation></message>
<message><source>Tom has 5 apples and gives away 2. How many are left?</source><translation>Tom has 5 apples and gives away 2. How many are left?</translation></message>
<message><source>What is the capital of Peru?</source><translation>What is the capital of Peru?</translation></message>
<message><source>What you write in this chat is sent to {server} on this PC.</source><translation>您在此聊天中写的内容会发送到本机上的 {server}。</translation></message>
<message><source>What you write in this chat is sent to {server}.</source><translation>您在此聊天中写的内容会发送到 {server}。</translation></message>
<message><source>Your next message loads {model}.</source><translation>您的下一条消息会加载 {model}。</translation></message>
<message><source>{model} in {server}, another program on this PC.</source><translation>{model}，位于 {server} 中，本机上的另一程序。</translation></message>
<message><source>{model} is {what} It works offline.</source><translation>{model}：{what} 可离线使用。</translation></message>
<message><source>{model} on {server}, not on this PC.</source><translation>{model} 在 {server} 上，不在此电脑上。</translation></message>
<message><source>Close  (Esc)</source><translation>关闭  (Esc)</translation></message>
<message><source>No matches</source><translation>无匹配项</translation></message>
<message><source>Opening</source><translation>正在打开</translation></message>
<message><source>Searching, {percent}%</source><translation>正在查找，{percent}%</translation></message>
<message numerus="yes"><source>{n} matches</source><translation><numerusform>{n} 个匹配</numerusform></translation></message>
<message><source>{n} of {total}</source><translation>第 {n} 个，共 {total} 个</translation></message>
<message><source>Cancel the download</source><translation>取消下载</translation></message>
<message><source>Couldn't download {name}</source><translation>未能下载 {name}</translation></message>
<message><source>Download</source><translation>下载</translation></message>
<message><source>Downloading {names}</source><translation>正在下载 {names}</translation></message>
<message><source>Load</source><translation>加载</translation></message>
<message><source>Load it, and the next answer comes from it.</source><translation>加载后，下一个回答就由它给出。</translation></message>
<message><source>Not now</source><translation>以后再说</translation></message>
<message><source>Pause the download</source><translation>暂停下载</translation></message>
<message><source>Resume</source><translation>继续</translation></message>
<message><source>You can keep chatting meanwhile.</source><translation>期间可以继续聊天。</translation></message>
<message><source>about {rate}</source><translation>约 {rate}</translation></message>
<message><source>better answers</source><translation>更好的回答</translation></message>
<message><source>{model} is only a demonstration. {name} answers this better</source><translation>{model} 只是演示。{name} 能回答得更好</translation></message>
<message><source>{name} is being prepared for this PC</source><translation>正在为此电脑准备 {name}</translation></message>
<message><source>{name} is on this PC</source><translation>{name} 已在此电脑上</translation></message>
<message><source>{name} is paused</source><translation>{name} 已暂停</translation></message>
<message><source>{name} runs well on this PC</source><translation>{name} 适合在此电脑上运行</translation></message>
<message><source>{size} to download</source><translation>需下载 {size}</translation></message>
<message><source>Export personas</source><translation>导出角色</translation></message>
<message><source>Export presets</source><translation>导出预设</translation></message>
<message><source>Export prompts</source><translation>导出提示词</translation></message>
<message><source>Export your personas to a file</source><translation>将您的角色写入文件</translation></message>
<message><source>Export your presets to a file</source><translation>将您的预设写入文件</translation></message>
<message><source>Export your prompts to a file</source><translation>将您的提示词导出到文件</translation></message>
<message><source>Import personas</source><translation>导入角色</translation></message>
<message><source>Import personas from a file</source><translation>从文件导入角色</translation></message>
<message><source>Import presets</source><translation>导入预设</translation></message>
<message><source>Import presets from a file</source><translation>从文件导入预设</translation></message>
<message><source>Import prompts</source><translation>导入提示词</translation></message>
<message><source>Import prompts from a file</source><translation>从文件导入提示词</translation></message>
<message><source>Name of the persona</source><translation>角色名称</translation></message>
<message><source>Name of the preset</source><translation>预设名称</translation></message>
<message><source>Name of the prompt</source><translation>提示词名称</translation></message>
<message><source>New persona</source><translation>新角色</translation></message>
<message><source>New preset</source><translation>新预设</translation></message>
<message><source>New prompt</source><translation>新提示词</translation></message>
<message><source>Small models may not follow long instructions.</source><translation>小模型可能不会遵守很长的指令。</translation></message>
<message><source>The text that is put into the message</source><translation>将插入消息中的文本</translation></message>
<message><source>To fill in: {names}. Tab goes to the next one.</source><translation>待填写：{names}。按 Tab 跳到下一个。</translation></message>
<message><source>What the model reads before the chat begins, in your words</source><translation>聊天开始前告诉模型的话，由您来写</translation></message>
<message><source>Write a word in braces, such as {example}, where something is to be filled in.</source><translation>在需要填写的位置写一个花括号中的词，例如 {example}。</translation></message>
<message numerus="yes"><source>{n} characters. They take up context in every chat with this persona.</source><translation><numerusform>{n} 个字符。使用此角色的每个聊天都会占用上下文。</numerusform></translation></message>
<message><source>Close</source><translation>关闭</translation></message>
<message><source>Duplicate</source><translation>复制一份</translation></message>
<message><source>Export</source><translation>导出</translation></message>
<message><source>Hearth's</source><translation>Hearth 自带</translation></message>
<message><source>Import</source><translation>导入</translation></message>
<message><source>It comes with Hearth and stays as it is. Duplicate it to make it yours.</source><translation>这是 Hearth 自带的，不可更改。复制一份即可归您所用。</translation></message>
<message><source>They are all here</source><translation>全都已在此处</translation></message>
<message><source>{added}, {left_out} left out as invalid</source><translation>{added}，略过 {left_out} 个：在此无意义</translation></message>
<message numerus="yes"><source>{n} added</source><translation><numerusform>已添加 {n} 个</numerusform></translation></message>
<message numerus="yes"><source>{n} written to {name}</source><translation><numerusform>已将 {n} 个写入 {name}</numerusform></translation></message>
<message><source>A prompt is put into the message, and a file is attached. You see both before you send them.</source><translation>提示词会放入消息，文件会作为附件。发送前您都能看到。</translation></message>
<message><source>Asking the server what it offers</source><translation>正在询问服务器提供什么</translation></message>
<message><source>Files</source><translation>文件</translation></message>
<message><source>Insert</source><translation>插入</translation></message>
<message><source>Prompts and files of this server</source><translation>此服务器的提示词和文件</translation></message>
<message><source>This server offers no prompts and no files.</source><translation>此服务器不提供提示词和文件。</translation></message>
<message><source>Waiting for {server}</source><translation>正在等待 {server}</translation></message>
<message><source>What you enter goes to the server {server}.</source><translation>您输入的内容会发送到服务器 {server}。</translation></message>
<message><source>Choose a file of results that the command hearth-engine compare has written.</source><translation>请选择由命令 hearth-engine compare 写入的结果文件。</translation></message>
<message><source>Couldn't open {name}</source><translation>无法打开 {name}</translation></message>
<message><source>Equally good</source><translation>同样好</translation></message>
<message><source>Left answer</source><translation>左侧回答</translation></message>
<message><source>Losses</source><translation>负</translation></message>
<message><source>Model and mode</source><translation>模型与模式</translation></message>
<message><source>Neither</source><translation>都不好</translation></message>
<message><source>Pair {n} of {count}. The models appear after the last pair.</source><translation>第 {n} 对，共 {count} 对。最后一对之后显示模型。</translation></message>
<message><source>Previous pair</source><translation>上一对</translation></message>
<message><source>Right answer</source><translation>右侧回答</translation></message>
<message><source>The file has no two different answers to the same prompt, so there is nothing to vote on.</source><translation>文件中没有对同一提示的两个不同回答，因此没有可投票的内容。</translation></message>
<message><source>The vote was not stored. {why} Try again.</source><translation>投票未保存。{why} 请重试。</translation></message>
<message><source>Which answer is better?</source><translation>哪个回答更好？</translation></message>
<message><source>Win rate</source><translation>胜率</translation></message>
<message><source>Wins</source><translation>胜</translation></message>
<message><source>{n} of {count} pairs have a vote.</source><translation>{count} 对中有 {n} 对已投票。</translation></message>
<message><source>Add to documents</source><translation>添加到文档</translation></message>
<message numerus="yes"><source>Answer from {n} folders?</source><translation><numerusform>根据 {n} 个文件夹回答？</numerusform></translation></message>
<message><source>Answer from “{name}”?</source><translation>根据“{name}”回答？</translation></message>
<message><source>Choose a folder with documents</source><translation>选择包含文档的文件夹</translation></message>
<message><source>Get an embedding model…</source><translation>获取嵌入模型…</translation></message>
<message><source>Search by meaning</source><translation>按含义搜索</translation></message>
<message><source>The documents stay where they are, and nothing leaves this PC. The model reads passages that fit a question of this chat.</source><translation>文档留在原处，任何内容都不会离开这台电脑。模型会阅读与本聊天问题相关的段落。</translation></message>
<message><source>Attached to this message</source><translation>附加到此消息</translation></message>
<message><source>No room for {tokens}</source><translation>容不下 {tokens}</translation></message>
<message><source>Only its beginning fits into the context</source><translation>上下文只能容纳其开头</translation></message>
<message><source>Reading {name}</source><translation>正在读取 {name}</translation></message>
<message><source>Remove {name}</source><translation>移除 {name}</translation></message>
<message><source>Show {name}</source><translation>显示 {name}</translation></message>
<message><source>first {kept} of {tokens}</source><translation>前 {kept} / {tokens}</translation></message>
<message numerus="yes"><source>{n} characters</source><translation><numerusform>{n} 个字符</numerusform></translation></message>
<message><source>Copy</source><translation>复制</translation></message>
<message><source>Put into the message</source><translation>放入消息</translation></message>
<message><source>Text of {name}</source><translation>{name} 的文本</translation></message>
<message><source>Documents and text files (*)</source><translation>文档和文本文件 (*)</translation></message>
<message><source>How answers are made: {words}</source><translation>回答方式：{words}</translation></message>
<message><source>Load {model}; the chat stays</source><translation>加载 {model}；聊天保留</translation></message>
<message><source>Model: {words}</source><translation>模型：{words}</translation></message>
<message><source>Send  (Enter)</source><translation>发送  (Enter)</translation></message>
<message><source>Stop</source><translation>停止</translation></message>
<message><source>Stop  (Esc)</source><translation>停止  (Esc)</translation></message>
<message><source>Stop loading</source><translation>停止加载</translation></message>
<message><source>The attachments are counted first</source><translation>正在统计附件</translation></message>
<message><source>Thinking: {words}</source><translation>思考：{words}</translation></message>
<message><source>{model} is loaded first</source><translation>会先加载 {model}</translation></message>
<message><source>{name} does not fit into the context: remove it</source><translation>上下文容不下 {name}：请移除</translation></message>
<message><source>{state}: the answer starts once the model is loaded</source><translation>{state}：模型就绪后开始回答</translation></message>
<message><source>Change its size</source><translation>更改大小</translation></message>
<message><source>Context used, {percent} percent</source><translation>上下文已用百分之 {percent}</translation></message>
<message><source>Drop oldest</source><translation>移除最早的</translation></message>
<message numerus="yes"><source>Full: {n} messages left out</source><translation><numerusform>已满：省略了 {n} 条消息</numerusform></translation></message>
<message><source>It is counted once the model is loaded.</source><translation>模型就绪后统计。</translation></message>
<message><source>Keep the beginning</source><translation>保留开头</translation></message>
<message><source>Not known yet</source><translation>尚不清楚</translation></message>
<message><source>Nothing is left out. When the chat no longer fits, the next message is not answered.</source><translation>不省略任何内容。放不下时，下一条消息不予回答。</translation></message>
<message><source>That leaves no room for an answer.</source><translation>没有空间留给回答。</translation></message>
<message><source>The first question, its answer and the newest messages stay. Those in between are left out.</source><translation>保留首个问答和最新消息，省略其间的内容。</translation></message>
<message><source>The model writes a summary of the oldest messages and reads the summary instead. Now and then, an answer starts later because of this.</source><translation>模型会为最早的消息写一份总结，并改为读取它。因此，回答偶尔会晚一些开始。</translation></message>
<message><source>The next message does not fit</source><translation>下一条消息放不下</translation></message>
<message><source>The next message takes {used} of {tokens}</source><translation>下一条消息占用 {used} / {tokens}</translation></message>
<message><source>The oldest messages are left out. The chat goes on, and they stay here to read.</source><translation>省略最早的消息。聊天继续，仍可在此查看。</translation></message>
<message><source>The question, what came before it, and the answer so far.</source><translation>问题、之前的内容以及目前的回答。</translation></message>
<message><source>What happens when it is full</source><translation>满时的处理方式</translation></message>
<message><source>When the context is full</source><translation>上下文满时</translation></message>
<message numerus="yes"><source>{n} earlier messages left out</source><translation><numerusform>已省略 {n} 条较早的消息</numerusform></translation></message>
<message numerus="yes"><source>{n} messages are left out after the first answer.</source><translation><numerusform>首个回答之后省略 {n} 条消息。</numerusform></translation></message>
<message numerus="yes"><source>{n} messages are left out at the beginning.</source><translation><numerusform>开头省略 {n} 条消息。</numerusform></translation></message>
<message numerus="yes"><source>{n} tokens are left for the answer.</source><translation><numerusform>还剩 {n} 个 token 供回答。</numerusform></translation></message>
<message><source>{percent}% of {total}</source><translation>{total} 的 {percent}%</translation></message>
<message><source>{used} of {tokens} are in use</source><translation>已用 {used} / {tokens}</translation></message>
<message><source>{used} of {tokens} of context</source><translation>上下文 {used} / {tokens}</translation></message>
<message><source>Answer on this PC</source><translation>在此电脑上回答</translation></message>
<message><source>Answer with Hearth</source><translation>由 Hearth 回答</translation></message>
<message><source>From the next message on, this chat stays on this PC</source><translation>从下一条消息起不再发送</translation></message>
<message><source>Sent to {server}</source><translation>发送到 {server}</translation></message>
<message><source>What you write in this chat leaves this PC.</source><translation>您在此聊天中写的内容会离开此电脑。</translation></message>
<message><source>What you write is sent to {server}, another program on this PC.</source><translation>您写的内容会发送到 {server}，本机上的另一程序。</translation></message>
<message><source>What you write is sent to {server}, {host}. It leaves this PC.</source><translation>您写的内容会发送到 {server}，{host}。它会离开此电脑。</translation></message>
<message><source>another program on this PC</source><translation>本机上的另一程序</translation></message>
<message><source>Add a folder…</source><translation>添加文件夹…</translation></message>
<message><source>Documents of this chat</source><translation>本聊天的文档</translation></message>
<message><source>Documents: no folder is on</source><translation>文档：未开启任何文件夹</translation></message>
<message><source>Documents: they stay on this PC and are not sent</source><translation>文档：留在这台电脑上，不会发送</translation></message>
<message numerus="yes"><source>Documents: {n} folders are on</source><translation><numerusform>文档：已开启 {n} 个文件夹</numerusform></translation></message>
<message><source>Manage documents…</source><translation>管理文档…</translation></message>
<message><source>The model can answer from folders of your documents. They stay where they are, on this PC.</source><translation>模型可以根据您的文档文件夹作答。文档留在原处，不离开这台电脑。</translation></message>
<message><source>This chat is sent to {server}. Your documents stay on this PC: they are not searched for it, and passages of them are not sent.</source><translation>本聊天会发送到 {server}。您的文档留在这台电脑上：不会为它搜索文档，也不会发送其中的段落。</translation></message>
<message><source>Edit them</source><translation>编辑</translation></message>
<message><source>Instructions for this chat</source><translation>此对话的指令</translation></message>
<message><source>Open the settings of the project</source><translation>打开项目设置</translation></message>
<message><source>Enter sends, Shift+Enter starts a new line</source><translation>Enter 发送，Shift 加 Enter 换行</translation></message>
<message><source>Folded because the text is very long. It is sent whole. Click, or press {keys}, to show more of it.</source><translation>文本很长，因此已折叠。发送时是完整的。点击或按 {keys} 可显示更多。</translation></message>
<message><source>Message</source><translation>消息</translation></message>
<message><source>Sent to {server}, another program on this PC.</source><translation>发送到 {server}，本机上的另一程序。</translation></message>
<message><source>Sent to {server}, not on this PC.</source><translation>发送到 {server}，不在此电脑上。</translation></message>
<message><source>Write a message</source><translation>写消息</translation></message>
<message><source>Write the beginning of a text; this base model continues it</source><translation>请写下文本开头，此基础模型会续写</translation></message>
<message><source>Write to {server}</source><translation>写给 {server}</translation></message>
<message><source>Don't send</source><translation>不发送</translation></message>
<message><source>Edit the next message</source><translation>编辑下一条消息</translation></message>
<message><source>Sent after this answer</source><translation>此回答后发送</translation></message>
<message><source>Sent after this answer: {words}</source><translation>此回答后发送：{words}</translation></message>
<message numerus="yes"><source>{n} attachments</source><translation><numerusform>{n} 个附件</numerusform></translation></message>
<message><source>As in the settings</source><translation>按设置</translation></message>
<message><source>Filter personas</source><translation>筛选角色</translation></message>
<message><source>No persona</source><translation>无角色</translation></message>
<message><source>No persona has “{typed}”.</source><translation>没有含“{typed}”的角色。</translation></message>
<message><source>Type to filter</source><translation>输入以筛选</translation></message>
<message><source>As in Settings</source><translation>按设置</translation></message>
<message><source>Changed for this chat</source><translation>已为此聊天更改</translation></message>
<message><source>Chosen for this model</source><translation>按此模型选择</translation></message>
<message><source>Chosen for this model: {mode}.</source><translation>按此模型选择：{mode}。</translation></message>
<message><source>Every neuron</source><translation>全部神经元</translation></message>
<message><source>How answers are made</source><translation>回答方式</translation></message>
<message><source>None</source><translation>无</translation></message>
<message><source>Only the neurons that the predictors expect</source><translation>只计算预测器预期的神经元</translation></message>
<message><source>Preset</source><translation>预设</translation></message>
<message><source>Skips inactive neurons; the same text as dense</source><translation>跳过未激活的神经元；结果与稠密相同</translation></message>
<message><source>Stop using this for every {model} chat</source><translation>不再用于与 {model} 的每个聊天</translation></message>
<message><source>This chat uses a server. It receives temperature, top p, seed, the longest answer and the stop texts.</source><translation>此聊天会发送到服务器。温度、top p、种子、最长回答和停止文本会一并发送。</translation></message>
<message><source>This model has no predictors, so it answers without them.</source><translation>此模型没有预测器，因此不使用预测器回答。</translation></message>
<message><source>This model has no predictors, so it answers {mode} instead.</source><translation>此模型没有预测器，因此以{mode}方式回答。</translation></message>
<message><source>Use this for every chat with {model}</source><translation>用于与 {model} 的每个聊天</translation></message>
<message><source>min p</source><translation>min p</translation></message>
<message><source>seed</source><translation>种子</translation></message>
<message><source>temperature</source><translation>温度</translation></message>
<message><source>top k</source><translation>top k</translation></message>
<message><source>top p</source><translation>top p</translation></message>
<message><source>A whole number from {low} to {high}</source><translation>{low} 到 {high} 的整数</translation></message>
<message><source>An answer ends before any of these, one per line; \n is a line break. At most {most}.</source><translation>回答在遇到其中任一项之前结束，每行一项；\n 表示换行。最多 {most} 项。</translation></message>
<message><source>Nothing</source><translation>无</translation></message>
<message><source>Stop at</source><translation>停止于</translation></message>
<message><source>Stop at. {words}</source><translation>停止于。{words}</translation></message>
<message><source>The model's</source><translation>模型自带</translation></message>
<message><source>{title}: as it was</source><translation>{title}：恢复原样</translation></message>
<message><source>Changed for this chat. Takes effect with the next answer.</source><translation>已为此聊天更改，从下一条回答起生效。</translation></message>
<message><source>Changes take effect with the next answer.</source><translation>更改从下一条回答起生效。</translation></message>
<message><source>Reset</source><translation>重置</translation></message>
<message><source>Sampling in this chat</source><translation>此聊天的采样</translation></message>
<message><source>Save</source><translation>保存</translation></message>
<message><source>Save as a preset</source><translation>另存为预设</translation></message>
<message><source>{preset}, for this chat</source><translation>{preset}，用于此聊天</translation></message>
<message><source>{variable} is not filled in. Send again to send it as it is.</source><translation>{variable} 尚未填写。再次发送即可原样发送。</translation></message>
<message><source>Ask again before every call</source><translation>每次调用前重新询问</translation></message>
<message><source>Built in</source><translation>内置</translation></message>
<message><source>Manage tools…</source><translation>管理工具…</translation></message>
<message numerus="yes"><source>The tools that are on take {n} tokens of the context.</source><translation><numerusform>已启用的工具占用上下文的 {n} 个 token。</numerusform></translation></message>
<message><source>Tools of this chat</source><translation>此对话的工具</translation></message>
<message><source>Tools: none is on</source><translation>工具：均未启用</translation></message>
<message numerus="yes"><source>Tools: {n} are on</source><translation><numerusform>工具：已启用 {n} 个</numerusform></translation></message>
<message><source>Not available</source><translation>不可用</translation></message>
<message><source>Paused at {n} of {total}</source><translation>已暂停，{n}/{total}</translation></message>
<message><source>Reading {n} of {total}</source><translation>正在读取 {n}/{total}</translation></message>
<message><source>chapter {n}</source><translation>第 {n} 章</translation></message>
<message><source>line {n}</source><translation>第 {n} 行</translation></message>
<message><source>page {n}</source><translation>第 {n} 页</translation></message>
<message><source>sheet {name}</source><translation>工作表 {name}</translation></message>
<message><source>sheet {n}</source><translation>工作表 {n}</translation></message>
<message><source>slide {n}</source><translation>第 {n} 张幻灯片</translation></message>
<message><source>whole text</source><translation>全文</translation></message>
<message numerus="yes"><source>{n} could not be read</source><translation><numerusform>{n} 个无法读取</numerusform></translation></message>
<message numerus="yes"><source>{n} documents</source><translation><numerusform>{n} 个文档</numerusform></translation></message>
<message><source>Add a folder, and the model can answer from the documents in it. They stay where they are. Hearth keeps an index of their text on this PC and sends nothing.</source><translation>添加一个文件夹，模型就能根据其中的文档作答。文档留在原处。Hearth 只在这台电脑上保存其文本的索引，不发送任何内容。</translation></message>
<message numerus="yes"><source>And {n} more</source><translation><numerusform>还有 {n} 个</numerusform></translation></message>
<message><source>Collapsed</source><translation>已折叠</translation></message>
<message><source>Documents are searched by words and by meaning.</source><translation>按词语和含义搜索文档。</translation></message>
<message><source>Documents are searched by words. A small embedding model also finds synonyms, in other languages too.</source><translation>按词语搜索文档。小型嵌入模型还能找到同义词，包括其他语言。</translation></message>
<message><source>Documents are searched by words. An embedding model such as {name} ({size}) also finds synonyms, in other languages too.</source><translation>文档按词语搜索。{name}（{size}）这样的嵌入模型还能找到同义词，包括其他语言。</translation></message>
<message><source>Expanded</source><translation>已展开</translation></message>
<message><source>Further documents are left out</source><translation>其余文档已略去</translation></message>
<message><source>Go on reading</source><translation>继续读取</translation></message>
<message><source>No folders yet</source><translation>还没有文件夹</translation></message>
<message><source>Not available. Is its drive connected? Hearth searches what it has already read from it.</source><translation>不可用。磁盘是否已连接？Hearth 会搜索已读取的内容。</translation></message>
<message><source>Open {name}</source><translation>打开 {name}</translation></message>
<message><source>Pause reading</source><translation>暂停读取</translation></message>
<message><source>Remove {name} from documents</source><translation>从文档中移除 {name}</translation></message>
<message><source>Search by meaning: {name}</source><translation>按含义搜索：{name}</translation></message>
<message><source>Switch folders on in a chat with the button below the message field. Documents stay where they are. Hearth keeps an index of their text on this PC and sends nothing.</source><translation>在聊天中用消息框下方的按钮开启文件夹。文档留在原处。Hearth 只在这台电脑上保存其文本的索引，不发送任何内容。</translation></message>
<message><source>The index of documents cannot be written: {why}. Hearth tries again every half a minute. If the disk is full, make some space.</source><translation>无法写入文档索引：{why}。Hearth 每半分钟重试一次。如果磁盘已满，请腾出一些空间。</translation></message>
<message><source>The model could not read the passages. There may be too little free RAM. It is tried again every minute; until then, words alone are searched.</source><translation>模型无法读取段落，可能是空闲内存不足。每分钟会重试一次；在此之前只按词语搜索。</translation></message>
<message numerus="yes"><source>{n} passages are still to be read by it, while nothing else is computed.</source><translation><numerusform>它还需读取 {n} 个段落，在没有其他计算时进行。</numerusform></translation></message>
<message><source>Couldn't find the passage on this page. The file may have changed since. Below is the text that went to the model.</source><translation>在此页上找不到该段落。文件可能已更改。下面是模型读取的文本。</translation></message>
<message><source>No program opened it. Its folder is {folder}.</source><translation>没有程序打开它。其所在文件夹为 {folder}。</translation></message>
<message><source>Open file</source><translation>打开文件</translation></message>
<message><source>Page</source><translation>页面</translation></message>
<message><source>Picture of {place} of {name}</source><translation>{name} {place}的图像</translation></message>
<message><source>Show in folder</source><translation>在文件夹中显示</translation></message>
<message><source>Text</source><translation>文本</translation></message>
<message><source>The file has changed since. Below is the text that went to the model.</source><translation>文件此后已更改。下面是模型读取的文本。</translation></message>
<message><source>The file is no longer there. Below is the text that went to the model.</source><translation>文件已不存在。下面是模型读取的文本。</translation></message>
<message><source>This file is in none of your folders of documents, so Hearth doesn't open it. Below is the text that went to the model.</source><translation>此文件不在您的任何文档文件夹中，因此 Hearth 不会打开它。下面是模型读取的文本。</translation></message>
<message><source>View</source><translation>视图</translation></message>
<message><source>{why} Below is the text that went to the model.</source><translation>{why}下面是模型读取的文本。</translation></message>
<message><source>Active before too</source><translation>之前也激活</translation></message>
<message><source>Alternatives</source><translation>备选</translation></message>
<message><source>Bytes read</source><translation>读取字节</translation></message>
<message><source>Choose one: the model continues from it in another version of this answer.</source><translation>选择一个：模型会从它继续，写出此回答的另一个版本。</translation></message>
<message numerus="yes"><source>Computed in one run with {n} guesses. Its own bytes and neurons are not known.</source><translation><numerusform>与 {n} 个猜测一起计算。其自身的字节和神经元未知。</numerusform></translation></message>
<message><source>Copied</source><translation>已复制</translation></message>
<message><source>Copy ids</source><translation>复制编号</translation></message>
<message><source>Copy text</source><translation>复制文本</translation></message>
<message><source>Cost</source><translation>开销</translation></message>
<message><source>Export…</source><translation>导出…</translation></message>
<message><source>Find</source><translation>查找</translation></message>
<message><source>Find in the tokens</source><translation>在 token 中查找</translation></message>
<message><source>In this model and mode, every neuron is active.</source><translation>在此模型和模式下，所有神经元都激活。</translation></message>
<message><source>Layer {layer}: experts {ids}</source><translation>第 {layer} 层：专家 {ids}</translation></message>
<message><source>Layer {layer}: experts {ids}; {n} on the GPU</source><translation>第 {layer} 层：专家 {ids}；{n} 个在 GPU 上</translation></message>
<message><source>More shading: less likely. Dotted: not the most likely token.</source><translation>底色越重越不可能。点线：并非最可能的 token。</translation></message>
<message><source>Neurons active</source><translation>激活的神经元</translation></message>
<message><source>Not found</source><translation>未找到</translation></message>
<message><source>Record from now on</source><translation>从现在起记录</translation></message>
<message><source>This token comes from reading the whole prompt, which its time includes. Its own bytes and neurons are not known.</source><translation>此 token 来自读取整个提示，其时间包含读取。其自身的字节和神经元未知。</translation></message>
<message><source>This token was guessed, and computed in one run with an earlier one. Its own bytes and neurons are not known.</source><translation>此 token 是猜中的，与较早的 token 一起计算。其自身的字节和神经元未知。</translation></message>
<message><source>Token {place} of {n}, id {id}</source><translation>第 {place} 个 token，共 {n} 个，编号 {id}</translation></message>
<message><source>Token {words}, id {id}</source><translation>token {words}，编号 {id}</translation></message>
<message><source>Token {words}, {share}</source><translation>token {words}，{share}</translation></message>
<message><source>Tokens of the answer</source><translation>回答的 token</translation></message>
<message><source>Tokens of the prompt</source><translation>提示的 token</translation></message>
<message><source>You chose this token; nothing was computed for it.</source><translation>此 token 由您选择，没有为它进行计算。</translation></message>
<message><source>not known here</source><translation>此处未知</translation></message>
<message><source>prompt of {n}</source><translation>提示 {n}</translation></message>
<message><source>{cpu}, all on the CPU</source><translation>{cpu}，全部在 CPU 上</translation></message>
<message><source>{gpu} on the GPU, {cpu} on the CPU</source><translation>GPU 上 {gpu}，CPU 上 {cpu}</translation></message>
<message><source>{n} more were too many to keep</source><translation>另有 {n} 过多，未保存</translation></message>
<message><source>Active neurons by layer, from {low} to {high}</source><translation>各层激活的神经元，{low} 到 {high}</translation></message>
<message><source>Copy neuron ids</source><translation>复制神经元编号</translation></message>
<message><source>Ids of the active neurons</source><translation>激活的神经元的编号</translation></message>
<message><source>Layer {layer}: {n} of {all} neurons active</source><translation>第 {layer} 层：{all} 个神经元中 {n} 个激活</translation></message>
<message><source>Layer {layer}: {share} active</source><translation>第 {layer} 层：{share} 激活</translation></message>
<message><source>Neuron {neuron}: active</source><translation>神经元 {neuron}：激活</translation></message>
<message><source>Neuron {neuron}: active only for the token before</source><translation>神经元 {neuron}：仅前一个 token 激活</translation></message>
<message><source>Neuron {neuron}: active, as for the token before</source><translation>神经元 {neuron}：激活，与前一个 token 相同</translation></message>
<message><source>Neuron {neuron}: not active</source><translation>神经元 {neuron}：未激活</translation></message>
<message><source>Which neurons were active is kept only for the last {n} of this answer's tokens.</source><translation>仅保留此回答最后 {n} 个 token 激活了哪些神经元。</translation></message>
<message><source>Which neurons were active was not recorded for this answer.</source><translation>此回答未记录激活了哪些神经元。</translation></message>
<message><source>under 0.1%</source><translation>低于 0.1%</translation></message>
<message><source>{n} also for the token before, in the stronger colour</source><translation>其中 {n} 个在前一个 token 也激活，颜色更醒目</translation></message>
<message><source>Commands, chats, models, settings</source><translation>命令、聊天、模型、设置</translation></message>
<message><source>Find commands, chats, models and settings</source><translation>查找命令、聊天、模型和设置</translation></message>
<message><source>Found</source><translation>结果</translation></message>
<message><source>Commands</source><translation>命令</translation></message>
<message><source>Messages</source><translation>消息</translation></message>
<message><source>Search all chats for “{text}”</source><translation>在所有聊天中搜索“{text}”</translation></message>
<message><source>use load switch model</source><translation>使用 加载 切换 模型</translation></message>
<message><source>use server switch model</source><translation>使用 服务器 切换 模型</translation></message>
<message><source>Ctrl+K finds these and everything else by name.</source><translation>Ctrl+K 可按名称查找这些以及其他一切。</translation></message>
<message><source>Now</source><translation>现在</translation></message>
<message><source>Speed {rate}</source><translation>速度 {rate}</translation></message>
<message><source>now</source><translation>现在</translation></message>
<message><source>tokens per second</source><translation>个 token 每秒</translation></message>
<message><source>{age} s ago</source><translation>{age} 秒前</translation></message>
<message><source>{figure} in all
Other programs: {others}</source><translation>共 {figure}
其他程序：{others}</translation></message>
<message><source>No GPU is measured: {why}.</source><translation>未测量 GPU：{why}。</translation></message>
<message><source>The neurons of a model appear here once one is loaded.</source><translation>加载模型后，可在此看到其神经元。</translation></message>
<message><source>The placement of the neurons is not known yet.</source><translation>尚不清楚神经元的位置。</translation></message>
<message><source>{mode} mode</source><translation>{mode}模式</translation></message>
<message><source>Layer {layer}, experts {first} to {last} of {n}, most chosen first, {where}, {share}% of tokens</source><translation>第 {layer} 层，第 {first} 到 {last} 个专家（共 {n} 个，最常选中的在前），{where}，{share}% 的 token</translation></message>
<message><source>Layer {layer}, neurons {first} to {last}% by how busy they are, {where}</source><translation>第 {layer} 层，按激活频率排第 {first} 至 {last}% 的神经元，{where}</translation></message>
<message><source>Map of experts, {layers} layers, {there} of the experts on the GPU</source><translation>专家图，{layers} 层，{there} 的专家在 GPU 上</translation></message>
<message><source>Map of neurons, {layers} layers, {there} of the neurons on the GPU</source><translation>神经元图，{layers} 层，{there} 的神经元在 GPU 上</translation></message>
<message><source>Map of neurons.</source><translation>神经元图。</translation></message>
<message><source>on the CPU</source><translation>在 CPU 上</translation></message>
<message><source>{part}, {fired}% of them fired</source><translation>{part}，其中 {fired}% 被激活</translation></message>
<message><source>Ask something: this shows where the time of each token goes, from attention to choosing the token.</source><translation>提个问题：此处显示每个 token 的时间分配，从注意力到选出 token。</translation></message>
<message><source>Its parts are not measured</source><translation>未测量各部分</translation></message>
<message><source>Time of a token</source><translation>一个 token 的时间</translation></message>
<message><source>Time of a token {total}</source><translation>一个 token 的时间 {total}</translation></message>
<message><source>{stage} on the {side}</source><translation>{side} 上的{stage}</translation></message>
<message><source>{time}, {share}% of the time</source><translation>{time}，占时间的 {share}%</translation></message>
<message><source>From the next message on, {model} answers this chat</source><translation>从下一条消息起，由 {model} 回答此对话</translation></message>
<message><source>the model</source><translation>模型</translation></message>
<message><source>A smaller model guesses the next words, and this one checks them. Answers stay the same and come faster.</source><translation>较小的模型猜测接下来的词，再由当前模型检查。回答不变，但更快。</translation></message>
<message><source>Guess with a smaller model</source><translation>用较小的模型猜测</translation></message>
<message><source>No model guesses now. {reason}</source><translation>目前没有模型在猜测。{reason}</translation></message>
<message><source>{model} guesses now.</source><translation>{model} 正在猜测。</translation></message>
<message><source>Asks for access</source><translation>需申请访问</translation></message>
<message><source>Models on the hub</source><translation>hub 上的模型</translation></message>
<message><source>On the Hugging Face hub</source><translation>在 Hugging Face hub 上</translation></message>
<message><source>Press Enter to search the hub. Only then are your words sent to it.</source><translation>请按回车键搜索模型中心。您输入的内容在此之后才会发送。</translation></message>
<message><source>Search the hub</source><translation>搜索模型中心</translation></message>
<message><source>Searching</source><translation>正在搜索</translation></message>
<message><source>Show files</source><translation>显示文件</translation></message>
<message><source>Show files: {repo}</source><translation>显示文件：{repo}</translation></message>
<message><source>The hub has nothing for “{text}”</source><translation>hub 上没有“{text}”</translation></message>
<message><source>The hub has nothing more for “{text}”</source><translation>hub 上没有更多“{text}”</translation></message>
<message><source>Try fewer words, or paste a repository link.</source><translation>请减少词语，或粘贴仓库链接。</translation></message>
<message><source>asks for access</source><translation>需申请访问</translation></message>
<message><source>{downloads} downloads</source><translation>{downloads} 次下载</translation></message>
<message numerus="yes"><source>{n} likes</source><translation><numerusform>{n} 个赞</numerusform></translation></message>
<message><source>A GGUF file</source><translation>GGUF 文件</translation></message>
<message><source>A model folder</source><translation>模型文件夹</translation></message>
<message><source>A server</source><translation>服务器</translation></message>
<message><source>Add a GGUF file</source><translation>添加 GGUF 文件</translation></message>
<message><source>Add a model</source><translation>添加模型</translation></message>
<message><source>Adding {name}</source><translation>正在添加 {name}</translation></message>
<message><source>Check the files</source><translation>检查文件</translation></message>
<message><source>Checking {name}</source><translation>正在检查 {name}</translation></message>
<message><source>Copy the repository id</source><translation>复制仓库标识</translation></message>
<message><source>Copying {name}</source><translation>正在复制 {name}</translation></message>
<message><source>Details</source><translation>详细信息</translation></message>
<message><source>Folder for models</source><translation>模型存放位置</translation></message>
<message><source>GGUF models (*.gguf)</source><translation>GGUF 模型 (*.gguf)</translation></message>
<message><source>Models are in {folder} now</source><translation>模型现存放于 {folder}</translation></message>
<message><source>More</source><translation>更多</translation></message>
<message><source>Moving the models to {name}</source><translation>正在将模型移到 {name}</translation></message>
<message><source>Moving {name}</source><translation>正在移动 {name}</translation></message>
<message><source>Open its folder</source><translation>打开其文件夹</translation></message>
<message><source>Open its page</source><translation>打开其页面</translation></message>
<message><source>Prepare for this PC</source><translation>为此电脑准备</translation></message>
<message><source>Refresh</source><translation>刷新</translation></message>
<message><source>Remove from list</source><translation>从列表移除</translation></message>
<message><source>Repository id copied</source><translation>已复制仓库标识</translation></message>
<message><source>Unload</source><translation>卸载</translation></message>
<message><source>Working {name}</source><translation>正在处理 {name}</translation></message>
<message><source>{name}: all files are intact</source><translation>{name}：所有文件均完好</translation></message>
<message><source>Prepare</source><translation>准备</translation></message>
<message><source>Repair</source><translation>修复</translation></message>
<message><source>Resume the download</source><translation>继续下载</translation></message>
<message><source>Stop preparing</source><translation>停止准备</translation></message>
<message><source>Tiny and always there. Good for a first try.</source><translation>小巧，随时可用。适合初次尝试。</translation></message>
<message><source>What would fit?</source><translation>哪些放得下？</translation></message>
<message><source>base model</source><translation>基础模型</translation></message>
<message><source>base model, continues text</source><translation>基础模型，续写文本</translation></message>
<message><source>embedding model</source><translation>嵌入模型</translation></message>
<message><source>Access</source><translation>访问</translation></message>
<message><source>Files: {names}</source><translation>文件：{names}</translation></message>
<message><source>Folder</source><translation>文件夹</translation></message>
<message><source>GPT4All's file; Hearth never changes or deletes it</source><translation>GPT4All 的文件；Hearth 从不更改或删除它</translation></message>
<message><source>Jan's file; Hearth never changes or deletes it</source><translation>Jan 的文件；Hearth 从不更改或删除它</translation></message>
<message><source>Kind</source><translation>类型</translation></message>
<message><source>LM Studio's file; Hearth never changes or deletes it</source><translation>LM Studio 的文件；Hearth 从不更改或删除它</translation></message>
<message><source>Licence</source><translation>许可</translation></message>
<message><source>Made by</source><translation>作者</translation></message>
<message><source>Needs an access token: its maker requires you to accept terms.</source><translation>需要访问令牌：制作者要求您先接受条款。</translation></message>
<message><source>Neurons in use</source><translation>使用的神经元</translation></message>
<message><source>Ollama's file; Hearth never changes or deletes it</source><translation>Ollama 的文件；Hearth 从不更改或删除它</translation></message>
<message><source>Origin</source><translation>来源</translation></message>
<message><source>Parameters</source><translation>参数</translation></message>
<message><source>Prepared</source><translation>准备情况</translation></message>
<message><source>Repository</source><translation>仓库</translation></message>
<message><source>Size</source><translation>大小</translation></message>
<message><source>Source</source><translation>来源</translation></message>
<message><source>State</source><translation>状态</translation></message>
<message><source>The GPU computes {share}% of a token's experts, the CPU the others at the same time.</source><translation>GPU 计算每个 token 所用专家的 {share}%，其余由 CPU 同时计算。</translation></message>
<message><source>The GPU computes {share}% of the active neurons, the CPU the others at the same time.</source><translation>GPU 计算 {share}% 的激活神经元，其余同时由 CPU 计算。</translation></message>
<message><source>Weights</source><translation>权重</translation></message>
<message><source>With a context of {context} tokens.</source><translation>上下文为 {context} 个 token。</translation></message>
<message><source>about {share}% per token</source><translation>每个 token 约 {share}%</translation></message>
<message><source>all (dense model)</source><translation>全部（稠密模型）</translation></message>
<message><source>and {more} more</source><translation>以及另外 {more} 个</translation></message>
<message><source>chat model</source><translation>聊天模型</translation></message>
<message><source>copied here</source><translation>复制到此处</translation></message>
<message><source>downloaded</source><translation>已下载</translation></message>
<message><source>in the hub's cache; not Hearth's to delete</source><translation>在 hub 缓存中；Hearth 不能删除</translation></message>
<message><source>made here by converting</source><translation>在此转换而成</translation></message>
<message><source>models of the same family</source><translation>同系列模型</translation></message>
<message><source>published measurements of this model</source><translation>此模型已发表的测量</translation></message>
<message><source>up to {max_context} tokens</source><translation>最多 {max_context} 个 token</translation></message>
<message><source>used where it is; not Hearth's to delete</source><translation>在原处使用；Hearth 不能删除</translation></message>
<message><source>{used} of {all} experts per token</source><translation>每个 token 使用 {all} 个专家中的 {used} 个</translation></message>
<message><source>{where}, of {ram} that models may take.</source><translation>{where}，模型可用共 {ram}。</translation></message>
<message><source>{where}, of {vram} of VRAM and {ram} of RAM that models may take.</source><translation>{where}，模型可用共 {vram} 显存和 {ram} 内存。</translation></message>
<message><source>A token comes from the environment (HF_TOKEN); it takes precedence over one saved here.</source><translation>令牌来自环境变量 (HF_TOKEN)；优先于此处保存的令牌。</translation></message>
<message><source>Add {name}</source><translation>添加 {name}</translation></message>
<message><source>Arrange the weights for this PC</source><translation>为此电脑排列权重</translation></message>
<message><source>Continue</source><translation>继续</translation></message>
<message><source>Continues where the last attempt ended.</source><translation>将从上次中断处继续。</translation></message>
<message><source>Copy it</source><translation>复制</translation></message>
<message><source>Count which neurons are active</source><translation>统计哪些神经元被激活</translation></message>
<message><source>Delete {name}?</source><translation>删除 {name}？</translation></message>
<message><source>Finding out what would help</source><translation>正在确定哪些步骤有用</translation></message>
<message><source>Frees {size}.</source><translation>可释放 {size}。</translation></message>
<message><source>From {now} to {then}.</source><translation>从 {now} 到 {then}。</translation></message>
<message><source>Getting it back means downloading it again.</source><translation>要恢复只能重新下载。</translation></message>
<message><source>Hide details</source><translation>隐藏详细信息</translation></message>
<message><source>How to add it</source><translation>添加方式</translation></message>
<message><source>It is copied and checked. You can delete the original afterwards.</source><translation>将复制并检查。之后可删除原件。</translation></message>
<message><source>It is stored in this system's keyring and sent only to the hub.</source><translation>它保存在此系统的密钥环中，只发送给 hub。</translation></message>
<message><source>It is unloaded first.</source><translation>会先卸载。</translation></message>
<message><source>It should reach {then}.</source><translation>预计可达 {then}。</translation></message>
<message><source>It was copied here from elsewhere.</source><translation>它是从别处复制来的。</translation></message>
<message><source>It will hardly become faster.</source><translation>几乎不会更快。</translation></message>
<message><source>Its files are not Hearth's and stay where they are.</source><translation>文件不属于 Hearth，会留在原处。</translation></message>
<message><source>Keep</source><translation>保留</translation></message>
<message><source>Needs {needs}.</source><translation>需要{needs}。</translation></message>
<message><source>No other model that Hearth knows of fits either.</source><translation>Hearth 所知的其他模型也都放不下。</translation></message>
<message><source>Place the neurons</source><translation>安排神经元位置</translation></message>
<message><source>Prepare {name} for this PC</source><translation>为此电脑准备 {name}</translation></message>
<message><source>Remove token</source><translation>移除令牌</translation></message>
<message><source>Remove {name} from the list?</source><translation>将 {name} 移出列表？</translation></message>
<message><source>Some models require you to accept terms first. Accept them on the model's page, then create a read token in your account on the hub and paste it here.</source><translation>有些模型要求先接受条款。请在模型页面接受，然后在您的 hub 账户中创建具有读取权限的令牌并粘贴到此处。</translation></message>
<message><source>Takes no extra space. It must stay there; Hearth never changes or deletes it.</source><translation>不占空间。文件须留在原处；Hearth 不会更改或删除。</translation></message>
<message><source>The token is kept until you close Hearth.</source><translation>令牌保留到 Hearth 关闭。</translation></message>
<message><source>The token is stored in a file that only you can read.</source><translation>令牌保存在只有您能读取的文件中。</translation></message>
<message><source>The token is stored in this system's keyring.</source><translation>令牌保存在此系统的密钥环中。</translation></message>
<message><source>There is nothing to prepare: it already runs here as well as it can.</source><translation>无需准备：它在此已是最佳状态。</translation></message>
<message><source>These come nearest to it.</source><translation>下面这些最接近。</translation></message>
<message><source>Train now</source><translation>立即训练</translation></message>
<message><source>Train predictors</source><translation>训练预测器</translation></message>
<message><source>Train when idle</source><translation>空闲时训练</translation></message>
<message><source>Until the predictors are trained, a simpler one is used, which is a little slower.</source><translation>训练完成前使用较简单的预测器：稍慢一些。</translation></message>
<message><source>Use it where it is</source><translation>在原处使用</translation></message>
<message><source>{name} does not fit</source><translation>{name} 放不下</translation></message>
<message><source>{name} is damaged</source><translation>{name} 已损坏</translation></message>
<message numerus="yes"><source>{n} files differ from the hub's. Repairing downloads only those.</source><translation><numerusform>有 {n} 个文件与 hub 上的不一致。修复只会下载这些文件。</numerusform></translation></message>
<message><source>{rate} ({how})</source><translation>{rate}（{how}）</translation></message>
<message><source>{size} on the disk</source><translation>{size} 磁盘空间</translation></message>
<message><source>{time} and {room}</source><translation>{time}和{room}</translation></message>
<message><source>Family</source><translation>系列</translation></message>
<message><source>Filters</source><translation>筛选</translation></message>
<message><source>Sort</source><translation>排序</translation></message>
<message><source>Not on this PC</source><translation>不在此电脑上</translation></message>
<message><source>Other programs on this PC</source><translation>本机上的其他程序</translation></message>
<message><source>about</source><translation>约</translation></message>
<message><source>in use</source><translation>使用中</translation></message>
<message><source>in {server}, another program on this PC</source><translation>在 {server} 中，本机上的另一程序</translation></message>
<message><source>on {server}, not on this PC</source><translation>在 {server} 上，不在此电脑上</translation></message>
<message><source>All models</source><translation>所有模型</translation></message>
<message><source>Answer again with</source><translation>重新回答所用模型</translation></message>
<message><source>Filter models</source><translation>筛选模型</translation></message>
<message><source>Looking for models on this PC</source><translation>正在查看此电脑上的模型</translation></message>
<message><source>No models match “{typed}”.</source><translation>没有与“{typed}”匹配的模型。</translation></message>
<message><source>Unload {model}</source><translation>卸载 {model}</translation></message>
<message><source>Add a model from this PC</source><translation>从此电脑添加模型</translation></message>
<message><source>Checking this PC</source><translation>正在检测此电脑</translation></message>
<message><source>Clear the search  (Esc)</source><translation>清除搜索  (Esc)</translation></message>
<message><source>Drop a GGUF file or a model folder</source><translation>将 GGUF 文件或模型文件夹拖到此处</translation></message>
<message><source>Filter models; Enter searches the hub, or opens a repository link</source><translation>筛选模型；按回车搜索模型中心或打开仓库链接</translation></message>
<message><source>Filter; Enter searches the hub</source><translation>筛选；按回车搜索模型中心</translation></message>
<message><source>Hearth asks whether to copy it or to use it where it is.</source><translation>Hearth 会询问是复制还是在原处使用。</translation></message>
<message><source>About {share} of the experts that a token uses are on the GPU.</source><translation>token 所用的专家中约 {share} 在 GPU 上。</translation></message>
<message><source>Answers were no faster with {model}.</source><translation>使用 {model} 时，回答并没有更快。</translation></message>
<message><source>Apply</source><translation>应用</translation></message>
<message><source>Automatic, {amount}</source><translation>自动，{amount}</translation></message>
<message><source>CPU only: no NVIDIA driver is installed.</source><translation>仅使用 CPU：未安装 NVIDIA 驱动程序。</translation></message>
<message><source>Does not fit</source><translation>放不下</translation></message>
<message><source>Double click: automatic</source><translation>双击：自动</translation></message>
<message><source>Frees its memory. The chat stays.</source><translation>释放其内存；聊天保留</translation></message>
<message><source>GPU memory for this model</source><translation>此模型的 GPU 显存</translation></message>
<message><source>Hide the reasons</source><translation>隐藏原因</translation></message>
<message><source>How the model runs here</source><translation>模型的运行方式</translation></message>
<message><source>It could not be loaded.</source><translation>无法加载该模型。</translation></message>
<message><source>It does not fit with this limit</source><translation>在此限制下放不下</translation></message>
<message><source>Less leaves room for other programs; more makes answers faster.</source><translation>少一些可为其他程序留出空间；多一些回答更快。</translation></message>
<message><source>No GPU is used: all of the model in RAM, {memory}</source><translation>未使用 GPU：整个模型在内存中，{memory}</translation></message>
<message><source>No GPU is used: {memory} in RAM, {disk} of experts on the disk</source><translation>未使用 GPU：内存 {memory}，磁盘上的专家 {disk}</translation></message>
<message><source>No model on this PC has the same vocabulary and is small enough.</source><translation>此电脑上没有词表相同且足够小的模型。</translation></message>
<message><source>Reloads the model with this limit. The chat stays.</source><translation>以此重新加载模型；聊天保留</translation></message>
<message><source>The KV cache on the GPU holds {tokens} tokens until a conversation is longer. It then grows in place of weights.</source><translation>GPU 上的 KV 缓存可容纳 {tokens} 个 token；对话更长时，它会增大并取代部分权重。</translation></message>
<message><source>The rest is in RAM: {memory}, which the CPU computes.</source><translation>其余 {memory} 在内存中，由 CPU 计算。</translation></message>
<message><source>There is room for a context of {tokens} tokens.</source><translation>可容纳 {tokens} 个 token 的上下文。</translation></message>
<message><source>Why?</source><translation>为什么？</translation></message>
<message><source>now {rate}</source><translation>目前 {rate}</translation></message>
<message><source>only {memory} of the GPU is free</source><translation>GPU 仅剩 {memory}</translation></message>
<message><source>{draft} cannot guess for {model}: its vocabulary is another.</source><translation>{draft} 无法为 {model} 猜测：词表不同。</translation></message>
<message><source>{gpu}: the attention of {some} of {layers} layers on the GPU, {memory}</source><translation>{gpu}：{layers} 层中 {some} 层的注意力在 GPU 上，{memory}</translation></message>
<message><source>{gpu}: the output head on the GPU, {memory}</source><translation>{gpu}：输出层在 GPU 上，{memory}</translation></message>
<message><source>{gpu}: {share} of the active neurons on the GPU, {memory}</source><translation>{gpu}：{share} 的激活神经元在 GPU 上，{memory}</translation></message>
<message><source>{gpu}: {share} of the neurons on the GPU, {memory}</source><translation>{gpu}：{share} 的神经元在 GPU 上，{memory}</translation></message>
<message><source>{gpu}: {some} of {all} experts of each layer on the GPU, {memory}</source><translation>{gpu}：每层 {all} 个专家中有 {some} 个在 GPU 上，{memory}</translation></message>
<message><source>{gpu}: {some} of {all} experts on the GPU, {memory}</source><translation>{gpu}：{all} 个专家中有 {some} 个在 GPU 上，{memory}</translation></message>
<message><source>{memory} of experts are read from the disk when they are chosen: about {part} for a token, and nearly all of them for a prompt.</source><translation>{memory} 的专家在被选中时从磁盘读取：每个 token 约 {part}，提示则几乎全部。</translation></message>
<message><source>{memory} of memory is missing.</source><translation>缺少 {memory} 内存。</translation></message>
<message><source>{model} computes one token at a time here, so guesses would not help.</source><translation>{model} 在这里逐个计算 token，猜测没有帮助。</translation></message>
<message><source>{model} failed while it guessed.</source><translation>{model} 在猜测时出错。</translation></message>
<message><source>{model} takes {memory} of RAM, and {free} are free.</source><translation>{model} 需要 {memory} 内存，可用 {free}。</translation></message>
<message><source>{share}% of the active neurons on the GPU</source><translation>{share}% 的激活神经元在 GPU 上</translation></message>
<message><source>{share}% of the experts that a token uses on the GPU</source><translation>token 所用专家的 {share}% 在 GPU 上</translation></message>
<message><source>{used} of {total} GB</source><translation>{used} / {total} GB</translation></message>
<message><source>Back to the models</source><translation>返回模型</translation></message>
<message><source>Bundle</source><translation>模型包</translation></message>
<message><source>Download: {name}, {size}</source><translation>下载：{name}，{size}</translation></message>
<message><source>GGUF</source><translation>GGUF</translation></message>
<message><source>GGUF of PowerInfer</source><translation>PowerInfer 的 GGUF</translation></message>
<message><source>It has no file that Hearth reads: GGUF or safetensors.</source><translation>其中没有 Hearth 可读取的文件：GGUF 或 safetensors。</translation></message>
<message><source>Its maker requires you to accept terms. Accept them on the model's page, then give Hearth an access token.</source><translation>制作者要求您接受条款：请在其页面上接受一次，并向 Hearth 提供访问令牌。</translation></message>
<message><source>Reading the list of files</source><translation>正在读取文件列表</translation></message>
<message><source>Safetensors</source><translation>Safetensors</translation></message>
<message numerus="yes"><source>{n} files</source><translation><numerusform>{n} 个文件</numerusform></translation></message>
<message><source>Its key is deleted from the keyring. Its chats stay, and this PC answers them from then on.</source><translation>其密钥将从密钥环中移除。它回答过的聊天会保留，之后由此电脑回答。</translation></message>
<message><source>Remove {server}?</source><translation>移除 {server}？</translation></message>
<message><source>Send it there</source><translation>发送</translation></message>
<message><source>Send this chat to {server}?</source><translation>将此聊天发送到 {server}？</translation></message>
<message><source>Your next message sends this whole chat and its attachments to {host}. Other chats stay as they are.</source><translation>随下一条消息，此聊天的全部内容和附件会发送到 {host}。其他聊天不受影响。</translation></message>
<message><source>A server that speaks OpenAI's API: a program on this PC such as Ollama, or another machine. Only chats for which you choose it are sent there.</source><translation>使用 OpenAI API 的服务器：本机上的程序（如 Ollama）或另一台机器。只有您为其选择该服务器的聊天才会发送到那里。</translation></message>
<message><source>Address</source><translation>地址</translation></message>
<message><source>Any name</source><translation>您对它的称呼</translation></message>
<message><source>Asking the server</source><translation>正在询问服务器</translation></message>
<message><source>Asks this address which models it has</source><translation>询问此地址有哪些模型</translation></message>
<message><source>Choose a model first</source><translation>请先选择模型</translation></message>
<message><source>Enter adds “{model}”.</source><translation>按 Enter 添加“{model}”。</translation></message>
<message><source>Filter models, or the name of one</source><translation>筛选模型，或输入模型名称</translation></message>
<message><source>For another address, add another server. Chats are never moved to another address.</source><translation>如需其他地址，请另添加一台服务器。对话绝不会自动改用别的地址。</translation></message>
<message numerus="yes"><source>It has {n} models. Choose which are offered.</source><translation><numerusform>它有 {n} 个模型。请选择提供哪些。</numerusform></translation></message>
<message><source>It lists no models. Type the name of one.</source><translation>它未列出模型。请输入模型名称。</translation></message>
<message><source>Key</source><translation>密钥</translation></message>
<message><source>Leave empty if it needs none</source><translation>如不需要请留空</translation></message>
<message><source>List its models</source><translation>列出其模型</translation></message>
<message><source>Name</source><translation>名称</translation></message>
<message><source>Not encrypted: others in this network can read what is sent.</source><translation>未加密：此网络中的其他人可以读取发送的内容。</translation></message>
<message><source>The key is stored in this system's keyring and sent only to this address.</source><translation>密钥保存在此系统的密钥环中，只发送到此地址。</translation></message>
<message><source>Type to filter, or a model's name</source><translation>输入以筛选，或输入模型名称</translation></message>
<message><source>Unchanged</source><translation>保持不变</translation></message>
<message><source>Change {server}</source><translation>更改 {server}</translation></message>
<message><source>New chat with {model} on {server}</source><translation>与 {server} 上的 {model} 新建聊天</translation></message>
<message><source>No model chosen</source><translation>未选择模型</translation></message>
<message><source>Only chats for which you choose one are sent there.</source><translation>只有您选择的聊天才会发送到那里。</translation></message>
<message><source>Servers</source><translation>服务器</translation></message>
<message><source>Progress</source><translation>进度</translation></message>
<message><source>Queued: {names}</source><translation>排队中：{names}</translation></message>
<message><source>Stop: {words}</source><translation>停止：{words}</translation></message>
<message><source>Waiting for the network: {names}</source><translation>等待网络：{names}</translation></message>
<message><source>{name} and {more} more</source><translation>{name} 等另外 {more} 个</translation></message>
<message><source>Export this chat</source><translation>导出此聊天</translation></message>
<message><source>Export this message</source><translation>导出此消息</translation></message>
<message><source>Laying out the pages</source><translation>正在排版</translation></message>
<message><source>PDF (*.pdf)</source><translation>PDF (*.pdf)</translation></message>
<message><source>Preview: {title}</source><translation>预览：{title}</translation></message>
<message><source>Print</source><translation>打印</translation></message>
<message><source>Printing</source><translation>正在打印</translation></message>
<message><source>The first {n} of {total} pages</source><translation>前 {n} 页，共 {total} 页</translation></message>
<message><source>Web page (*.html)</source><translation>网页 (*.html)</translation></message>
<message><source>All versions</source><translation>所有版本</translation></message>
<message><source>Form</source><translation>形式</translation></message>
<message><source>Other versions of messages, and what follows them</source><translation>消息的其他版本及其后续内容</translation></message>
<message><source>PDF file</source><translation>PDF 文件</translation></message>
<message><source>Preview</source><translation>预览</translation></message>
<message><source>Print or export this chat</source><translation>打印或导出此对话</translation></message>
<message><source>Print or export this message</source><translation>打印或导出此消息</translation></message>
<message><source>Thoughts</source><translation>思考内容</translation></message>
<message><source>Web page</source><translation>网页</translation></message>
<message><source>What the model thought before it answered</source><translation>模型回答前的思考</translation></message>
<message><source>Page {number} of {count}</source><translation>第 {number} 页，共 {count} 页</translation></message>
<message><source>Added to {name}</source><translation>已添加到 {name}</translation></message>
<message><source>From project {name}: {parts}</source><translation>来自项目 {name}：{parts}</translation></message>
<message><source>Project {name}</source><translation>项目 {name}</translation></message>
<message><source>as in the settings</source><translation>与设置相同</translation></message>
<message><source>instructions</source><translation>指令</translation></message>
<message><source>no notes ({why})</source><translation>无笔记（{why}）</translation></message>
<message><source>notes</source><translation>笔记</translation></message>
<message><source>notes ({n} of {all} characters fit)</source><translation>笔记（容得下 {n} / {all} 个字符）</translation></message>
<message><source>the loaded one</source><translation>已加载的模型</translation></message>
<message numerus="yes"><source>{n} folders of documents</source><translation><numerusform>{n} 个文档文件夹</numerusform></translation></message>
<message numerus="yes"><source>{n} tools</source><translation><numerusform>{n} 个工具</numerusform></translation></message>
<message><source>A text file of yours that the model reads after the instructions.</source><translation>您的一个文本文件，模型在指令之后读取。</translation></message>
<message><source>Calls that send or change something still ask you.</source><translation>发送或更改内容的调用仍会询问您。</translation></message>
<message><source>Chats without a choice of their own are sent to this server, with all that was said in them and the instructions and notes of the project.</source><translation>没有自行选择的对话会发送到此服务器，包括其中的全部内容以及项目的指令和笔记。</translation></message>
<message><source>Choose a file…</source><translation>选择文件…</translation></message>
<message><source>Documents for these chats</source><translation>这些聊天的文档</translation></message>
<message><source>File for the notes</source><translation>笔记文件</translation></message>
<message><source>First add a folder with the button of documents below the message field.</source><translation>请先用消息框下方的文档按钮添加文件夹。</translation></message>
<message><source>Notes</source><translation>笔记</translation></message>
<message><source>Nothing is written before you accept it.</source><translation>在您接受之前不会写入任何内容。</translation></message>
<message><source>Opens the file in your editor</source><translation>在您的编辑器中打开文件</translation></message>
<message><source>Persona</source><translation>角色</translation></message>
<message><source>Settings for all chats in this folder. What you choose in a chat itself comes first.</source><translation>此文件夹中所有对话的设置。您在对话中自行选择的内容优先。</translation></message>
<message><source>Text files (*.md *.txt)</source><translation>文本文件 (*.md *.txt)</translation></message>
<message><source>The model answers from these folders. They stay on this PC.</source><translation>模型根据这些文件夹回答。它们保留在这台电脑上。</translation></message>
<message><source>The model may propose notes</source><translation>模型可以建议笔记</translation></message>
<message><source>Tools for these chats</source><translation>这些对话的工具</translation></message>
<message><source>What the model reads before every chat of this project</source><translation>模型在此项目的每个对话之前读取的内容</translation></message>
<message><source>no longer there</source><translation>已不存在</translation></message>
<message><source>{name}, in {folder}</source><translation>{name}，位于 {folder}</translation></message>
<message><source>{n} characters. At most {most} fit.</source><translation>{n} 个字符。最多 {most} 个。</translation></message>
<message><source>Add to notes</source><translation>添加到笔记</translation></message>
<message><source>It is added at the end of {path}.</source><translation>将添加到 {path} 的末尾。</translation></message>
<message><source>The model reads them before this chat, after those of the project and the persona.</source><translation>模型在此对话之前读取，位于项目和角色的指令之后。</translation></message>
<message><source>Built with</source><translation>构建所用</translation></message>
<message><source>Chats are stored unencrypted in your own folder. “Data folder” in the settings opens it. Delete single chats in Hearth, or all that Hearth stores with “Delete everything…” in the settings.</source><translation>聊天未加密地存储在您自己的文件夹中。设置中的“数据文件夹”可打开它。您可以在 Hearth 中删除单个聊天，或用设置中的“全部删除…”删除 Hearth 存储的所有内容。</translation></message>
<message><source>Hearth chats with language models on this PC, with an engine of its own that skips the neurons which do not fire. Where there is an NVIDIA GPU, it computes the busy neurons there and the others on the CPU at the same time.</source><translation>Hearth 在此电脑上与语言模型聊天，其自有引擎会跳过未激活的神经元。若有 NVIDIA GPU，高频神经元在其上计算，其余同时由 CPU 计算。</translation></message>
<message><source>Hearth uses the network only when you search for or download a model, write to a server that you added, open a link, or look for updates.</source><translation>只有在您搜索或下载模型、向您添加的服务器发送消息、打开链接或检查更新时，Hearth 才会使用网络。</translation></message>
<message><source>Hearth's own code is under the MIT licence. The starter model and the parts below are under their own.</source><translation>Hearth 自身代码采用 MIT 许可。入门模型及以下组件采用各自的许可。</translation></message>
<message><source>It includes no text of its licence, {licence}.</source><translation>未附带其许可 {licence} 的文本。</translation></message>
<message><source>Other programs on this PC can ask your model only while the local server is switched on, and only with its key.</source><translation>只有在您开启本地服务器期间，且持有其密钥时，这台电脑上的其他程序才能询问您的模型。</translation></message>
<message><source>Part</source><translation>组件</translation></message>
<message><source>Starter model</source><translation>入门模型</translation></message>
<message><source>This text cannot be read: {path} ({why}). Install Hearth again.</source><translation>无法读取此文本：{path}（{why}）。请重新安装 Hearth。</translation></message>
<message><source>Version</source><translation>版本</translation></message>
<message><source>Version {version}</source><translation>版本 {version}</translation></message>
<message><source>What you write, what is answered and what you attach stay on this PC. There is no account and no telemetry. Nothing is sent when Hearth starts, runs or crashes.</source><translation>您写的内容、得到的回答和您附加的文件都留在这台电脑上。没有账号，没有遥测。Hearth 启动、运行或崩溃时都不发送任何内容。</translation></message>
<message><source>Another program or the system ended it, or it stopped answering.</source><translation>它被外部结束，或停止了响应。</translation></message>
<message><source>Hearth ended unexpectedly last time</source><translation>Hearth 上次意外退出</translation></message>
<message><source>Nothing was recorded.</source><translation>没有记录。</translation></message>
<message><source>What is known</source><translation>已知的情况</translation></message>
<message><source>You can save a report and show it to others. It contains no text of yours, and nothing is sent.</source><translation>您可以保存一份报告，供帮助您的人查看。其中没有您的文字，也不会发送任何内容。</translation></message>
<message><source>Your chats are safe</source><translation>您的对话安然无恙</translation></message>
<message><source>Choose what to delete. Hearth itself stays installed.</source><translation>请选择要删除的内容。Hearth 本身仍保持安装。</translation></message>
<message><source>Close Hearth</source><translation>关闭 Hearth</translation></message>
<message><source>Delete this for good?</source><translation>永久删除？</translation></message>
<message><source>Delete what Hearth stores on this PC</source><translation>删除 Hearth 存储在此电脑上的内容</translation></message>
<message><source>Delete {size} for good?</source><translation>永久删除 {size}？</translation></message>
<message><source>Delete {size}…</source><translation>删除 {size}…</translation></message>
<message><source>Delete…</source><translation>删除…</translation></message>
<message><source>Deleting</source><translation>正在删除</translation></message>
<message><source>Empty</source><translation>空</translation></message>
<message><source>Everything that Hearth stores on this PC is deleted.</source><translation>Hearth 存储在此电脑上的所有内容都将被删除。</translation></message>
<message><source>Hearth is closing, to delete this.</source><translation>Hearth 正在关闭以便删除。</translation></message>
<message><source>Hearth is ending what it was doing.</source><translation>Hearth 正在结束当前工作。</translation></message>
<message><source>Hearth stops what it is doing, deletes it, and starts again.</source><translation>Hearth 会停止当前工作，删除后重新启动。</translation></message>
<message><source>It cannot be undone.</source><translation>此操作无法撤销。</translation></message>
<message><source>Less than 1 MB</source><translation>不到 1 MB</translation></message>
<message><source>Not everything was deleted</source><translation>并非全部已删除</translation></message>
<message><source>Start Hearth again</source><translation>重新启动 Hearth</translation></message>
<message><source>The rest is still there.</source><translation>其余内容仍在。</translation></message>
<message><source>This is deleted: {groups}.</source><translation>将删除：{groups}。</translation></message>
<message><source>What is left is still there:</source><translation>以下内容仍在：</translation></message>
<message numerus="yes"><source>and {n} more</source><translation><numerusform>以及另外 {n} 项</numerusform></translation></message>
<message><source>{size} deleted.</source><translation>已删除 {size}。</translation></message>
<message><source>Connected now</source><translation>当前连接</translation></message>
<message><source>Every program that talks to this server needs the new one.</source><translation>与此服务器通信的每个程序都需要新密钥。</translation></message>
<message><source>Hide the key</source><translation>隐藏密钥</translation></message>
<message numerus="yes"><source>None. {n} requests answered so far.</source><translation><numerusform>无。至今已回答 {n} 个请求。</numerusform></translation></message>
<message><source>Off. No other program can use a model here.</source><translation>已关闭。其他程序无法使用此处的模型。</translation></message>
<message><source>On, answered by {model}, which {client} asked for.</source><translation>已开启，由 {client} 请求的 {model} 回答。</translation></message>
<message><source>On, answered by {model}.</source><translation>已开启，由 {model} 回答。</translation></message>
<message><source>On, but no model is loaded, so requests are refused.</source><translation>已开启，但未加载模型，因此请求会被拒绝。</translation></message>
<message><source>On. No model is loaded; a request loads the one that it names.</source><translation>已开启。没有加载模型；请求会加载它指定的模型。</translation></message>
<message><source>Programs with the old key will be refused</source><translation>之后使用旧密钥的程序会被拒绝</translation></message>
<message><source>Renew</source><translation>更新</translation></message>
<message><source>Renew the key?</source><translation>更新密钥？</translation></message>
<message><source>Show the key</source><translation>显示密钥</translation></message>
<message><source>Starting.</source><translation>正在开启。</translation></message>
<message><source>Switched off</source><translation>已关闭</translation></message>
<message><source>local server for other programs, openai api</source><translation>本地服务器 其他程序 openai api</translation></message>
<message><source>{client} waits</source><translation>{client} 在等待</translation></message>
<message numerus="yes"><source>{client}: {n} tokens</source><translation><numerusform>{client}：{n} 个 token</numerusform></translation></message>
<message numerus="yes"><source>{n} requests were refused.</source><translation><numerusform>已拒绝 {n} 个请求。</numerusform></translation></message>
<message><source>Address of SearXNG</source><translation>SearXNG 的地址</translation></message>
<message><source>Key for Brave Search</source><translation>Brave Search 的密钥</translation></message>
<message><source>Paste the key here</source><translation>在此粘贴密钥</translation></message>
<message><source>Remove key</source><translation>移除密钥</translation></message>
<message><source>Searches are sent to this address only. It must allow the format JSON.</source><translation>搜索内容只发送到此地址。该地址须允许 JSON 格式。</translation></message>
<message><source>The key is stored in this system's keyring and sent only to Brave.</source><translation>密钥保存在系统密钥环中，只发送给 Brave。</translation></message>
<message><source>The service that searches the web when a model asks for it.</source><translation>模型提出请求时，由此服务搜索网页。</translation></message>
<message><source>Tools</source><translation>工具</translation></message>
<message><source>Hearth tests each of its parts. This can take a few minutes. The report contains none of your text, and nothing is sent.</source><translation>Hearth 会测试自身的每个部分，这可能需要几分钟。报告不包含您的任何文本，也不会发送任何内容。</translation></message>
<message><source>Report</source><translation>报告</translation></message>
<message><source>Testing</source><translation>正在测试</translation></message>
<message><source>The test could not be started.</source><translation>无法启动测试。</translation></message>
<message><source>The test ended before it was complete.</source><translation>测试尚未完成就已结束。</translation></message>
<message><source>Copy: {what}</source><translation>复制：{what}</translation></message>
<message><source>No program opened this folder. Copy its path instead.</source><translation>没有程序打开此文件夹。请改为复制其路径。</translation></message>
<message><source>Open: {what}</source><translation>打开：{what}</translation></message>
<message><source>Search settings</source><translation>搜索设置</translation></message>
<message><source>Double-click for: {back}</source><translation>双击恢复：{back}</translation></message>
<message><source>Must be between {low} and {high}.</source><translation>必须在 {low} 和 {high} 之间。</translation></message>
<message><source>no text</source><translation>无文本</translation></message>
<message><source>off</source><translation>关</translation></message>
<message><source>on</source><translation>开</translation></message>
<message><source>the first text</source><translation>最初的文本</translation></message>
<message><source>{title}: back to {value}</source><translation>{title}：恢复为 {value}</translation></message>
<message><source>“{typed}” is not a number.</source><translation>“{typed}”不是数字。</translation></message>
<message><source>Data folder</source><translation>数据文件夹</translation></message>
<message><source>Each part with its time, in a text without private content</source><translation>每个部分及其用时，文本不含私人内容</translation></message>
<message><source>Folders that a chat can answer from</source><translation>聊天可用来作答的文件夹</translation></message>
<message><source>For models that ask for one</source><translation>用于需要令牌的模型</translation></message>
<message><source>Help</source><translation>帮助</translation></message>
<message><source>Models folder</source><translation>模型文件夹</translation></message>
<message><source>Move…</source><translation>移动…</translation></message>
<message><source>Newer versions of Hearth</source><translation>Hearth 的新版本</translation></message>
<message><source>No settings match “{typed}”.</source><translation>没有与“{typed}”匹配的设置。</translation></message>
<message><source>Or parts of what Hearth stores on this PC</source><translation>或删除部分存储内容</translation></message>
<message><source>Privacy and storage</source><translation>隐私与存储</translation></message>
<message><source>To show to others. Contains no chats and no file names.</source><translation>可给他人查看。不含聊天和文件名。</translation></message>
<message><source>What Hearth did, on this PC only</source><translation>Hearth 的运行记录，仅在此电脑上</translation></message>
<message><source>What leaves this PC, and what does not</source><translation>哪些内容会离开这台电脑，哪些不会</translation></message>
<message><source>AS YOU APPROVED IT</source><translation>您批准时的内容</translation></message>
<message><source>Approve {tool}</source><translation>批准 {tool}</translation></message>
<message><source>Approved</source><translation>已批准</translation></message>
<message><source>Changed</source><translation>已更改</translation></message>
<message><source>Definition of {tool}</source><translation>{tool} 的定义</translation></message>
<message><source>Gone</source><translation>已不存在</translation></message>
<message><source>Hide the definition of {tool}</source><translation>隐藏 {tool} 的定义</translation></message>
<message><source>It runs with your rights and is not confined: it can do whatever you can do on this PC.</source><translation>它以您的权限运行且不受限制：您在这台电脑上能做的事它都能做。</translation></message>
<message><source>It runs with your rights, confined by Landlock: it can change only its own folder and the folders that you name. It can use the network.</source><translation>它以您的权限运行，并受 Landlock 限制：只能更改它自己的文件夹和您指定的文件夹。它可以使用网络。</translation></message>
<message><source>NOW</source><translation>现在</translation></message>
<message><source>New</source><translation>新</translation></message>
<message><source>Show the definition of {tool}</source><translation>显示 {tool} 的定义</translation></message>
<message><source>The server has changed it since you approved it. It is off until you approve it again.</source><translation>在您批准之后服务器更改了它。在您再次批准之前它保持关闭。</translation></message>
<message><source>The server's hints:</source><translation>服务器的提示：</translation></message>
<message><source>You approved it, but the server no longer offers it.</source><translation>您已批准它，但服务器不再提供。</translation></message>
<message><source>Choose those to add. They stay off until you switch them on. A program runs with your rights; where it is not confined, it can do whatever you can do.</source><translation>选择要添加的项。在您打开之前它们保持关闭。程序以您的权限运行；在不受限制的地方，您能做的事它都能做。</translation></message>
<message><source>It holds no server that Hearth can use.</source><translation>其中没有 Hearth 可以使用的服务器。</translation></message>
<message><source>MCP servers in {file}</source><translation>{file} 中的 MCP 服务器</translation></message>
<message><source>Not confined</source><translation>不受限制</translation></message>
<message><source>Sends: {names}</source><translation>发送：{names}</translation></message>
<message><source>Sets: {names}</source><translation>设置：{names}</translation></message>
<message><source>These cannot be added:</source><translation>这些无法添加：</translation></message>
<message><source>A chat can call the tools that you approve, once you switch the server on in the settings.</source><translation>在设置中打开服务器后，对话可以调用您批准的工具。</translation></message>
<message><source>A chat can call the tools that you approve.</source><translation>对话可以调用您批准的工具。</translation></message>
<message><source>A program that offers tools. Hearth starts it when one of them is called.</source><translation>提供工具的程序。其中一个工具被调用时，Hearth 会启动它。</translation></message>
<message><source>A server that offers tools. What a chat sends to a tool goes to this address.</source><translation>提供工具的服务器。对话发送给工具的内容会发往此地址。</translation></message>
<message><source>Allow</source><translation>允许</translation></message>
<message><source>Arguments, one per line</source><translation>参数，每行一个</translation></message>
<message><source>Asking for its tools</source><translation>正在查询它的工具</translation></message>
<message><source>Authorization: Bearer …</source><translation>Authorization: Bearer …</translation></message>
<message><source>Cancelled.</source><translation>已取消。</translation></message>
<message><source>Command</source><translation>命令</translation></message>
<message><source>Command line</source><translation>命令行</translation></message>
<message><source>Confine it</source><translation>限制它</translation></message>
<message><source>Folder that it may read and change</source><translation>它可以读取和更改的文件夹</translation></message>
<message><source>Folders that it may read and change, one per line</source><translation>它可以读取和更改的文件夹，每行一个</translation></message>
<message><source>Headers, one per line</source><translation>标头，每行一个</translation></message>
<message><source>Hearth starts it when you look at its tools, or when a chat calls one of them.</source><translation>当您查看它的工具或对话调用其中一个时，Hearth 会启动它。</translation></message>
<message><source>It is ended, and its approvals and its private folder are deleted. The program itself stays.</source><translation>它将被结束，其批准记录和私有文件夹会被删除。程序本身保留。</translation></message>
<message><source>It offers no tools.</source><translation>它不提供工具。</translation></message>
<message><source>Kind of server</source><translation>服务器类型</translation></message>
<message><source>Landlock keeps it out of your other files. A server that needs Docker or a desktop cannot work this way.</source><translation>Landlock 使它无法接触您的其他文件。需要 Docker 或桌面的服务器无法以此方式工作。</translation></message>
<message><source>Last lines of its output</source><translation>其输出的最后几行</translation></message>
<message><source>Let Hearth start this program?</source><translation>允许 Hearth 启动此程序吗？</translation></message>
<message><source>Look at its tools</source><translation>查看它的工具</translation></message>
<message><source>Program on this PC</source><translation>这台电脑上的程序</translation></message>
<message><source>Settings of this server</source><translation>此服务器的设置</translation></message>
<message><source>Starting it, and asking for its tools</source><translation>正在启动它并查询它的工具</translation></message>
<message><source>This system cannot confine programs: it can do whatever you can do.</source><translation>此系统无法限制程序：您能做的事它都能做。</translation></message>
<message><source>Values are stored in a file that only you can read.</source><translation>这些值保存在只有您能读取的文件中。</translation></message>
<message><source>Variables, one NAME=value per line</source><translation>变量，每行一个 名称=值</translation></message>
<message><source>Without one, it can change nothing but a folder of its own.</source><translation>没有指定时，它只能更改自己的文件夹。</translation></message>
<message><source>{name} is added, and off. Look at its tools, and approve those that chats may call.</source><translation>{name} 已添加，当前关闭。请查看它的工具，并批准对话可以调用的工具。</translation></message>
<message><source>{name} is there twice.</source><translation>{name} 出现了两次。</translation></message>
<message><source>“{line}” has no {sign}.</source><translation>“{line}”中没有 {sign}。</translation></message>
<message><source>Add…</source><translation>添加…</translation></message>
<message><source>Import MCP servers</source><translation>导入 MCP 服务器</translation></message>
<message><source>Import from a file…</source><translation>从文件导入…</translation></message>
<message><source>MCP servers</source><translation>MCP 服务器</translation></message>
<message><source>No tool approved</source><translation>未批准任何工具</translation></message>
<message><source>Programs and addresses that offer tools. A chat can call a tool after you approved it here and switched it on in the chat.</source><translation>提供工具的程序和地址。您在此处批准工具并在对话中打开后，对话才能调用它。</translation></message>
<message><source>Reads the servers of another program, such as mcp.json</source><translation>读取其他程序的服务器，例如 mcp.json</translation></message>
<message><source>Remove a server first</source><translation>请先移除一个服务器</translation></message>
<message><source>Settings of other programs (*.json)</source><translation>其他程序的设置 (*.json)</translation></message>
<message><source>Tools changed since you approved them</source><translation>工具在您批准后已更改</translation></message>
<message numerus="yes"><source>{n} tools approved</source><translation><numerusform>已批准 {n} 个工具</numerusform></translation></message>
<message><source>Check again</source><translation>再次检查</translation></message>
<message><source>Check now</source><translation>立即检查</translation></message>
<message><source>Download {size}</source><translation>下载 {size}</translation></message>
<message><source>Downloading version {version}…</source><translation>正在下载版本 {version}…</translation></message>
<message><source>Go back to {version}</source><translation>回到 {version}</translation></message>
<message><source>Install and restart</source><translation>安装并重启</translation></message>
<message><source>Installing version {version}…</source><translation>正在安装版本 {version}…</translation></message>
<message><source>Looking for a newer version…</source><translation>正在查找新版本…</translation></message>
<message><source>Nothing is requested until you check.</source><translation>在您检查之前不会发出任何请求。</translation></message>
<message><source>Open the installer</source><translation>打开安装程序</translation></message>
<message><source>This build offers no updates. Get new versions where you got this one.</source><translation>此构建不提供更新。请从获取此版本的地方获取新版本。</translation></message>
<message><source>This is version {version}.</source><translation>当前为版本 {version}。</translation></message>
<message><source>Version {version} is available; this is {own}.</source><translation>版本 {version} 可用；当前为 {own}。</translation></message>
<message><source>Version {version} is available; this is {own}. Get it where you got this one.</source><translation>版本 {version} 可用；当前为 {own}。请从获取此版本的地方获取。</translation></message>
<message><source>Version {version} is downloaded and verified. Version {own} stays installed, so that you can go back to it.</source><translation>版本 {version} 已下载并通过验证。版本 {own} 会保留，方便您回退。</translation></message>
<message><source>Version {version} is downloaded and verified. Your system's installer opens it; restart Hearth afterwards.</source><translation>版本 {version} 已下载并通过验证。系统的安装程序会打开它；之后请重启 Hearth。</translation></message>
<message><source>Version {version} is the newest.</source><translation>版本 {version} 是最新版本。</translation></message>
<message><source>{done} of {total} MB</source><translation>{done} / {total} MB</translation></message>
<message><source>Now on the CPU</source><translation>现在在 CPU 上运行</translation></message>
<message><source>Now on the GPU and the CPU</source><translation>现在在 GPU 和 CPU 上运行</translation></message>
<message><source>Now on {card} and the CPU</source><translation>现在在 {card} 和 CPU 上运行</translation></message>
<message numerus="yes"><source>And {n} more chats</source><translation><numerusform>另有 {n} 个对话</numerusform></translation></message>
<message><source>Bin</source><translation>回收站</translation></message>
<message numerus="yes"><source>Delete {n} chats for good?</source><translation><numerusform>彻底删除 {n} 个对话？</numerusform></translation></message>
<message><source>Delete “{title}” for good</source><translation>彻底删除“{title}”</translation></message>
<message><source>Delete “{title}” for good?</source><translation>彻底删除“{title}”？</translation></message>
<message numerus="yes"><source>Deleted chats are kept for {n} days. Searches and exports leave them out.</source><translation><numerusform>已删除的对话会保留 {n} 天，搜索和导出不包含它们。</numerusform></translation></message>
<message><source>Empty the bin</source><translation>清空回收站</translation></message>
<message><source>It cannot be restored afterwards.</source><translation>之后将无法恢复。</translation></message>
<message><source>Restore</source><translation>恢复</translation></message>
<message><source>Restore “{title}”</source><translation>恢复“{title}”</translation></message>
<message><source>The bin is empty.</source><translation>回收站是空的。</translation></message>
<message><source>What is in the bin cannot be restored afterwards.</source><translation>之后将无法恢复回收站中的内容。</translation></message>
<message numerus="yes"><source>{n} days left</source><translation><numerusform>还剩 {n} 天</numerusform></translation></message>
<message><source>Chats (*.json *.jsonl *.zip *.chat)</source><translation>对话 (*.json *.jsonl *.zip *.chat)</translation></message>
<message><source>Export all chats</source><translation>导出所有聊天</translation></message>
<message><source>Folder for the exported chats</source><translation>聊天存放位置</translation></message>
<message><source>Folder of chats</source><translation>对话所在的文件夹</translation></message>
<message><source>Hearth chats</source><translation>Hearth 聊天</translation></message>
<message><source>Import cancelled. Nothing was imported.</source><translation>导入已取消，未导入任何内容。</translation></message>
<message><source>JSON, which Hearth can import (*.json)</source><translation>JSON，Hearth 可导入 (*.json)</translation></message>
<message><source>Markdown (*.md)</source><translation>Markdown (*.md)</translation></message>
<message><source>Move</source><translation>移动</translation></message>
<message><source>Move this chat to “{folder}”?</source><translation>将此对话移至“{folder}”？</translation></message>
<message><source>All chats</source><translation>所有聊天</translation></message>
<message><source>Delete folder and chats</source><translation>删除文件夹和对话</translation></message>
<message><source>Export all as JSON</source><translation>全部导出为 JSON</translation></message>
<message><source>Export all as Markdown</source><translation>全部导出为 Markdown</translation></message>
<message><source>Export as JSON</source><translation>导出为 JSON</translation></message>
<message><source>Export as Markdown</source><translation>导出为 Markdown</translation></message>
<message><source>Move to a new folder</source><translation>移到新文件夹</translation></message>
<message><source>Move to folder</source><translation>移到文件夹</translation></message>
<message><source>New chat here</source><translation>在此新建对话</translation></message>
<message><source>New folder</source><translation>新建文件夹</translation></message>
<message><source>Pin</source><translation>固定</translation></message>
<message><source>Print or export</source><translation>打印或导出</translation></message>
<message><source>Remove folder, keep chats</source><translation>移除文件夹，保留聊天</translation></message>
<message><source>Remove from folder</source><translation>移出文件夹</translation></message>
<message><source>Unpin</source><translation>取消固定</translation></message>
<message><source>April</source><translation>四月</translation></message>
<message><source>August</source><translation>八月</translation></message>
<message><source>December</source><translation>十二月</translation></message>
<message><source>February</source><translation>二月</translation></message>
<message><source>Folders</source><translation>文件夹</translation></message>
<message><source>January</source><translation>一月</translation></message>
<message><source>July</source><translation>七月</translation></message>
<message><source>June</source><translation>六月</translation></message>
<message><source>Last 7 days</source><translation>最近 7 天</translation></message>
<message><source>March</source><translation>三月</translation></message>
<message><source>May</source><translation>五月</translation></message>
<message><source>November</source><translation>十一月</translation></message>
<message><source>October</source><translation>十月</translation></message>
<message><source>Pinned</source><translation>已固定</translation></message>
<message><source>September</source><translation>九月</translation></message>
<message><source>Today</source><translation>今天</translation></message>
<message><source>Yesterday</source><translation>昨天</translation></message>
<message><source>{month} {year}</source><translation>{year} 年{month}</translation></message>
<message><source>{name}, folder, {chats}, closed</source><translation>{name}，文件夹，{chats}，已折叠</translation></message>
<message><source>{name}, folder, {chats}, open</source><translation>{name}，文件夹，{chats}，已展开</translation></message>
<message><source>{title}, waiting for you</source><translation>{title}，等待您的回应</translation></message>
<message><source>{title}, writing</source><translation>{title}，正在书写</translation></message>
<message><source>Folder menu</source><translation>文件夹菜单</translation></message>
<message><source>New name</source><translation>新名称</translation></message>
<message><source>New title</source><translation>新标题</translation></message>
<message><source>Create</source><translation>创建</translation></message>
<message><source>Name of the folder</source><translation>文件夹名称</translation></message>
<message><source>New project</source><translation>新建项目</translation></message>
<message><source>This folder exists.</source><translation>此文件夹已存在。</translation></message>
<message><source>This folder exists. The chat moves to it.</source><translation>已有同名文件夹：聊天将放入其中。</translation></message>
<message><source>Already here</source><translation>已存在</translation></message>
<message><source>Cancel import</source><translation>取消导入</translation></message>
<message><source>Choose a file</source><translation>选择文件</translation></message>
<message><source>Choose a folder</source><translation>选择文件夹</translation></message>
<message><source>Choose the folder of its models, which also holds its chats.</source><translation>选择它的模型文件夹，对话也在其中。</translation></message>
<message><source>Choose the folder “.lmstudio/conversations” in your home folder.</source><translation>选择主文件夹中的“.lmstudio/conversations”文件夹。</translation></message>
<message><source>Choose the folder “threads” in Jan's data folder.</source><translation>选择 Jan 数据文件夹中的“threads”文件夹。</translation></message>
<message><source>Choose what the other program exported, or drop it on the list of chats. Nothing leaves this PC.</source><translation>选择其他程序导出的内容，或将其拖到对话列表上。任何内容都不会离开这台电脑。</translation></message>
<message><source>Continue in the background</source><translation>在后台继续</translation></message>
<message><source>Importing chats</source><translation>正在导入对话</translation></message>
<message><source>In the bin</source><translation>在回收站中</translation></message>
<message><source>Left out</source><translation>已省略</translation></message>
<message><source>Menu of all chats, Export all as JSON. Choose the JSON file.</source><translation>所有对话的菜单，全部导出为 JSON。选择该 JSON 文件。</translation></message>
<message><source>No new chats</source><translation>没有新对话</translation></message>
<message><source>Reading the file</source><translation>正在读取文件</translation></message>
<message><source>Settings, Data controls, Export chats. Choose the JSON file.</source><translation>设置、数据控制、导出对话。选择该 JSON 文件。</translation></message>
<message><source>Settings, Data controls, Export data. Choose the ZIP file that you are sent.</source><translation>设置、数据管理、导出数据。选择您收到的 ZIP 文件。</translation></message>
<message><source>Settings, Privacy, Export data. Choose the ZIP file that you are sent.</source><translation>设置、隐私、导出数据。选择您收到的 ZIP 文件。</translation></message>
<message><source>Skipped</source><translation>已跳过</translation></message>
<message><source>The file is cut off or damaged: chats after that place are missing. Export it again.</source><translation>文件被截断或已损坏：该处之后的对话缺失。请重新导出。</translation></message>
<message><source>Undo import</source><translation>撤销导入</translation></message>
<message numerus="yes"><source>{n} chats imported from {programs}</source><translation><numerusform>已从 {programs} 导入 {n} 个对话</numerusform></translation></message>
<message numerus="yes"><source>{n} chats so far</source><translation><numerusform>目前 {n} 个对话</numerusform></translation></message>
<message numerus="yes"><source>{n} chats, which stay as they are</source><translation><numerusform>{n} 个对话，保持不变</numerusform></translation></message>
<message numerus="yes"><source>{n} chats. Restore them there.</source><translation><numerusform>{n} 个对话。请在那里恢复。</numerusform></translation></message>
<message numerus="yes"><source>{n} damaged</source><translation><numerusform>{n} 个已损坏</numerusform></translation></message>
<message numerus="yes"><source>{n} of an unknown version</source><translation><numerusform>{n} 个版本未知</numerusform></translation></message>
<message numerus="yes"><source>{n} other parts</source><translation><numerusform>{n} 个其他部分</numerusform></translation></message>
<message numerus="yes"><source>{n} pictures</source><translation><numerusform>{n} 张图片</numerusform></translation></message>
<message numerus="yes"><source>{n} recordings</source><translation><numerusform>{n} 段录音或视频</numerusform></translation></message>
<message numerus="yes"><source>{n} that are not chats</source><translation><numerusform>{n} 个不是对话</numerusform></translation></message>
<message numerus="yes"><source>{n} that are there twice</source><translation><numerusform>{n} 个重复</numerusform></translation></message>
<message numerus="yes"><source>{n} too large</source><translation><numerusform>{n} 个过大</numerusform></translation></message>
<message numerus="yes"><source>{n} without messages</source><translation><numerusform>{n} 个没有消息</numerusform></translation></message>
<message><source>{parts}. Their places are marked.</source><translation>{parts}。其位置已标注。</translation></message>
<message><source>Open the sidebar</source><translation>打开侧栏</translation></message>
<message><source>Search</source><translation>搜索</translation></message>
<message><source>Close the sidebar</source><translation>关闭侧栏</translation></message>
<message><source>No chat mentions “{typed}”</source><translation>没有聊天提到“{typed}”</translation></message>
<message><source>Try fewer words.</source><translation>请减少词语。</translation></message>
<message><source>Your chats will appear here.</source><translation>您的聊天会显示在此处。</translation></message>
<message><source>Models, {figure}</source><translation>模型，{figure}</translation></message>
<message><source>Sidebar</source><translation>侧栏</translation></message>
<message><source>Figures of this answer</source><translation>此回答的数据</translation></message>
<message><source>This answer, measured on this PC</source><translation>此回答，在此电脑上测得</translation></message>
<message><source>Table in the answer</source><translation>回答中的表格</translation></message>
<message><source>Sources</source><translation>来源</translation></message>
<message numerus="yes"><source>The whole of {n} documents went along</source><translation><numerusform>一并附上了 {n} 个文档的全文</numerusform></translation></message>
<message numerus="yes"><source>{n} more documents</source><translation><numerusform>另有 {n} 个文档</numerusform></translation></message>
<message numerus="yes"><source>{n} more that were found</source><translation><numerusform>另外找到 {n} 个</numerusform></translation></message>
<message numerus="yes"><source>{n} sources that were found</source><translation><numerusform>找到 {n} 个来源</numerusform></translation></message>
<message><source>Add to notes…</source><translation>添加到笔记…</translation></message>
<message><source>Show more</source><translation>显示更多</translation></message>
<message><source>This answer</source><translation>此回答</translation></message>
<message><source>{share}% of this answer is shown. Copy and export include all of it.</source><translation>已显示此回答的 {share}%。复制和导出包含全部内容。</translation></message>
<message><source>Click the figure below the message to choose what happens when the context is full.</source><translation>点按消息下方的数字，可选择上下文满时的处理方式。</translation></message>
<message numerus="yes"><source>Instead of {n} earlier messages, it reads this summary.</source><translation><numerusform>模型读取此总结，以代替 {n} 条较早的消息。</numerusform></translation></message>
<message numerus="yes"><source>Left out: {n} messages, from “{first}” to “{last}”.</source><translation><numerusform>已省略 {n} 条消息，从“{first}”到“{last}”。</numerusform></translation></message>
<message><source>Left out: “{first}”.</source><translation>已省略“{first}”。</translation></message>
<message><source>The chat is longer than what the model can read at once.</source><translation>聊天超出了模型一次能读取的长度。</translation></message>
<message numerus="yes"><source>They stay here to read.</source><translation><numerusform>仍可在此查看。</numerusform></translation></message>
<message><source>Use the original messages</source><translation>使用原始消息</translation></message>
<message><source>What the model reads</source><translation>模型读取的内容</translation></message>
<message><source>Why is that?</source><translation>为什么？</translation></message>
<message numerus="yes"><source>{n} earlier messages are no longer in the context</source><translation><numerusform>{n} 条较早的消息已不在上下文中</numerusform></translation></message>
<message numerus="yes"><source>{n} earlier messages are summarised</source><translation><numerusform>已总结 {n} 条较早的消息</numerusform></translation></message>
<message numerus="yes"><source>{n} messages after the first answer are no longer in the context</source><translation><numerusform>首个回答之后的 {n} 条消息已不在上下文中</numerusform></translation></message>
<message numerus="yes"><source>{n} messages were left out.</source><translation><numerusform>已省略 {n} 条消息。</numerusform></translation></message>
<message><source>Jump to end</source><translation>跳到末尾</translation></message>
<message><source>Next version</source><translation>下一版本</translation></message>
<message><source>Previous version</source><translation>上一版本</translation></message>
<message><source>Copy message</source><translation>复制消息</translation></message>
<message><source>Delete with its answer</source><translation>连同回答一起删除</translation></message>
<message><source>Edit</source><translation>编辑</translation></message>
<message><source>Edit message</source><translation>编辑消息</translation></message>
<message><source>Edit your message</source><translation>编辑您的消息</translation></message>
<message><source>More for this message</source><translation>此消息的更多操作</translation></message>
<message><source>The chat goes on from here in a new branch</source><translation>聊天将从此处开始新分支</translation></message>
<message><source>You: {text}</source><translation>您：{text}</translation></message>
<message><source>Your message</source><translation>您的消息</translation></message>
<message><source>Your message, changed</source><translation>您的消息，已更改</translation></message>
<message><source>{share}% of this message is shown. Copy and export include all of it.</source><translation>已显示此消息的 {share}%。复制和导出包含全部内容。</translation></message>
<message><source>Copy as Markdown</source><translation>复制为 Markdown</translation></message>
<message><source>Copy link</source><translation>复制链接</translation></message>
<message><source>Open link</source><translation>打开链接</translation></message>
<message><source>Select message</source><translation>选择消息</translation></message>
<message><source>Continue this answer</source><translation>让此回答继续写下去</translation></message>
<message><source>More for this answer</source><translation>此回答的更多操作</translation></message>
<message><source>Statistics: {words}</source><translation>统计：{words}</translation></message>
<message><source>Code</source><translation>代码</translation></message>
<message><source>Copy code</source><translation>复制代码</translation></message>
<message><source>Copy {language} code</source><translation>复制 {language} 代码</translation></message>
<message><source>Let long lines scroll</source><translation>长行改为滚动</translation></message>
<message><source>Open in the browser, without network access</source><translation>在浏览器中打开（与网络隔离）</translation></message>
<message><source>Show fewer lines</source><translation>显示较少行</translation></message>
<message><source>Show the code</source><translation>显示代码</translation></message>
<message><source>Show the diagram</source><translation>显示图表</translation></message>
<message numerus="yes"><source>Show {n} lines</source><translation><numerusform>显示 {n} 行</numerusform></translation></message>
<message numerus="yes"><source>Show {n} more lines</source><translation><numerusform>再显示 {n} 行</numerusform></translation></message>
<message><source>This diagram cannot be drawn. It may have an error.</source><translation>无法绘制此图表，其中可能有错误。</translation></message>
<message><source>Wrap long lines</source><translation>长行自动换行</translation></message>
<message><source>code</source><translation>代码</translation></message>
<message><source>{language} code</source><translation>{language} 代码</translation></message>
<message><source>Diagram</source><translation>图表</translation></message>
<message numerus="yes"><source>Show {n} more rows</source><translation><numerusform>再显示 {n} 行</numerusform></translation></message>
<message numerus="yes"><source>{n} rows are not shown. Copy includes them.</source><translation><numerusform>有 {n} 行未显示。复制包含这些行。</numerusform></translation></message>
<message><source>Hide the thought</source><translation>隐藏思考过程</translation></message>
<message><source>Show the thought</source><translation>显示思考过程</translation></message>
<message><source>{share}% of this thought is shown. Export includes all of it.</source><translation>已显示此思考的 {share}%。导出包含全部内容。</translation></message>
<message><source>Accept</source><translation>接受</translation></message>
<message><source>Add this to the notes?</source><translation>将此添加到笔记？</translation></message>
<message><source>Allow once</source><translation>允许一次</translation></message>
<message><source>Allow {what} in this chat</source><translation>在此对话中允许 {what}</translation></message>
<message><source>Allow {what} in this folder</source><translation>在此文件夹中允许 {what}</translation></message>
<message><source>Allow “{title}”?</source><translation>允许“{title}”吗？</translation></message>
<message><source>Decline</source><translation>拒绝</translation></message>
<message><source>Don't add</source><translation>不添加</translation></message>
<message><source>Done</source><translation>完成</translation></message>
<message><source>Failed</source><translation>失败</translation></message>
<message><source>Hearth cannot show the fields that this server asks for.</source><translation>Hearth 无法显示此服务器要求的字段。</translation></message>
<message><source>Hide the details</source><translation>隐藏详情</translation></message>
<message><source>Not run</source><translation>未运行</translation></message>
<message><source>Refuse</source><translation>拒绝</translation></message>
<message><source>Refused</source><translation>已拒绝</translation></message>
<message><source>Running</source><translation>正在运行</translation></message>
<message><source>Show the details</source><translation>显示详情</translation></message>
<message><source>The model proposes a line at the end of {path}:</source><translation>模型建议在 {path} 的末尾添加一行：</translation></message>
<message><source>The model wants to send this to the server {server}:</source><translation>模型想将以下内容发送到服务器 {server}：</translation></message>
<message><source>The model wants to send this to {receiver}:</source><translation>模型想将以下内容发送到 {receiver}：</translation></message>
<message><source>The server {server} asks you:</source><translation>服务器 {server} 向您提问：</translation></message>
<message><source>This looks like a request for a password or key. Hearth cannot tell who receives it. Enter it only if you trust this server.</source><translation>这看起来是在询问密码或密钥。Hearth 无法知道谁会得到它。仅在您信任此服务器时才输入。</translation></message>
<message><source>Waiting for you</source><translation>等待您的决定</translation></message>
<message><source>What the model asked for</source><translation>模型的请求</translation></message>
<message><source>Your answer goes to this server. The model sees it only if the server tells it.</source><translation>您的回答会发送到此服务器。只有服务器转达时，模型才会看到。</translation></message>
<message><source>Open Hearth</source><translation>打开 Hearth</translation></message>
<message><source>Quit</source><translation>退出</translation></message>
<message><source>Copy details</source><translation>复制详细信息</translation></message>
<message><source>Discard</source><translation>放弃</translation></message>
<message><source>Discard your changes?</source><translation>放弃您的更改？</translation></message>
<message><source>Keep writing</source><translation>继续编写</translation></message>
<message><source>What you wrote in this dialog is not saved.</source><translation>您在此对话框中写的内容尚未保存。</translation></message>
<message><source>Couldn't read the list of models.</source><translation>未能读取模型列表。</translation></message>
<message><source>No models are known</source><translation>没有已知的模型</translation></message>
<message><source>No models match</source><translation>没有符合的模型</translation></message>
<message><source>No models on this PC yet</source><translation>此电脑上还没有模型</translation></message>
<message><source>Reading the list of models</source><translation>正在查看</translation></message>
<message><source>Show all</source><translation>显示全部</translation></message>
<message><source>Show the recommended ones</source><translation>显示推荐</translation></message>
<message><source>The models to choose from, and those on this PC.</source><translation>可选模型以及此电脑上的模型。</translation></message>
<message><source>Those you download or add will be here.</source><translation>您下载或添加的模型会显示在此处。</translation></message>
<message><source>Try another filter, or any size and family.</source><translation>请换一个筛选条件，或不限大小和系列。</translation></message>
<message><source>Getting ready, {done} of {total}</source><translation>准备中，{done}/{total}</translation></message>
<message><source>loaded in {time}</source><translation>加载用时 {time}</translation></message>
<message><source>Cut</source><translation>剪切</translation></message>
<message><source>Paste</source><translation>粘贴</translation></message>
<message><source>Redo</source><translation>重做</translation></message>
<message><source>Select all</source><translation>全选</translation></message>
<message><source>Undo</source><translation>撤销</translation></message>
<message><source>GPU memory: {ours} percent Hearth, {others} percent other programs</source><translation>GPU 显存：Hearth 占百分之 {ours}，其他程序占百分之 {others}</translation></message>
<message><source>Share on the GPU, {share} percent</source><translation>GPU 占比，百分之 {share}</translation></message>
<message><source>{name}, {done} percent</source><translation>{name}，百分之 {done}</translation></message>
<message><source>shown</source><translation>已显示</translation></message>
<message><source>{name} (optional)</source><translation>{name}（可选）</translation></message>
<message><source>Close the search  (Esc)</source><translation>关闭搜索  (Esc)</translation></message>
<message><source>Search chats</source><translation>搜索聊天</translation></message>
<message><source>Close Hearth and lose what is not saved?</source><translation>关闭 Hearth 并丢失未保存的内容？</translation></message>
<message><source>Keep open</source><translation>不关闭</translation></message>
<message><source>A setting has a value that this model does not allow.</source><translation>某项设置的值不适用于此模型。</translation></message>
<message><source>Another program is using the file of your chats.</source><translation>另一个程序占用了您的聊天文件。</translation></message>
<message><source>Choose automatically</source><translation>自动选择</translation></message>
<message><source>Couldn't ask the server</source><translation>未能询问服务器</translation></message>
<message><source>Couldn't export the chats</source><translation>未能导出聊天</translation></message>
<message><source>Couldn't import the chats</source><translation>未能导入聊天</translation></message>
<message><source>Couldn't load {model}</source><translation>未能加载 {model}</translation></message>
<message><source>Couldn't open your chats</source><translation>未能打开您的聊天</translation></message>
<message><source>Couldn't save your settings</source><translation>未能保存您的设置</translation></message>
<message><source>Couldn't start the engine</source><translation>引擎未启动</translation></message>
<message><source>Enter a key</source><translation>输入密钥</translation></message>
<message><source>Hearth uses its defaults in their place.</source><translation>Hearth 改用默认值。</translation></message>
<message><source>Hearth {version} is available</source><translation>Hearth {version} 已发布</translation></message>
<message><source>If this continues, install Hearth again.</source><translation>如果一直如此，请重新安装 Hearth。</translation></message>
<message><source>It is restarting. Nothing in the chat is lost.</source><translation>它正在自行重启。聊天内容全部保留。</translation></message>
<message><source>It stopped several times in a row, so Hearth does not restart it. Nothing in the chat is lost.</source><translation>它连续多次停止，不再自行启动。聊天内容全部保留。</translation></message>
<message><source>It was kept next to a new one.</source><translation>它保留在新文件旁。</translation></message>
<message><source>Load the starter model</source><translation>加载入门模型</translation></message>
<message><source>Models cannot be managed right now</source><translation>目前无法管理模型</translation></message>
<message><source>New messages are kept in memory until they can be saved.</source><translation>期间的内容保留在内存中，一旦可行即会保存。</translation></message>
<message><source>Nothing in it could be read.</source><translation>其中没有可读取的内容。</translation></message>
<message><source>Nothing was imported.</source><translation>未导入任何内容。</translation></message>
<message><source>One of the model's files is damaged or incomplete. Download it again, or use another model.</source><translation>模型的某个文件损坏或不完整。请重新获取，或使用其他模型。</translation></message>
<message><source>Open settings</source><translation>打开设置</translation></message>
<message><source>Open the folder</source><translation>打开文件夹</translation></message>
<message><source>Part of the engine does not run on this PC's CPU.</source><translation>引擎的一部分无法在此电脑的处理器上运行。</translation></message>
<message><source>Restart the engine</source><translation>重启引擎</translation></message>
<message><source>Send again</source><translation>重新发送</translation></message>
<message><source>Some of your chats could not be read</source><translation>部分聊天未能读取</translation></message>
<message><source>Some of your settings could not be read</source><translation>部分设置未能读取</translation></message>
<message><source>Something did not work as it should. Your chats are safe.</source><translation>出现异常。您的聊天安全。</translation></message>
<message><source>Something went wrong in Hearth</source><translation>Hearth 发现自身错误</translation></message>
<message><source>Start a new chat</source><translation>开始新聊天</translation></message>
<message><source>The GPU cannot be used on this PC.</source><translation>无法在此电脑上使用 GPU。</translation></message>
<message><source>The GPU stopped working. The text so far is kept, and the model is being loaded again.</source><translation>GPU 已停止工作。此前生成的内容会保留，模型正在重新加载。</translation></message>
<message><source>The answer ends here; the text so far is kept. Your chats are safe.</source><translation>回答到此结束；已写的内容会保留。您的聊天安全。</translation></message>
<message><source>The damaged file is kept as {name}.</source><translation>损坏的文件保留为 {name}。</translation></message>
<message><source>The disk is full</source><translation>磁盘已满</translation></message>
<message><source>The disk is full, so they last only until Hearth is closed.</source><translation>磁盘已满，因此这些设置只保留到关闭 Hearth 为止。</translation></message>
<message><source>The disk is full.</source><translation>磁盘已满。</translation></message>
<message><source>The disk is full: {size} is free.</source><translation>磁盘已满：仅剩 {size}。</translation></message>
<message><source>The engine could not do what was asked.</source><translation>引擎未能完成请求。</translation></message>
<message><source>The engine keeps stopping</source><translation>引擎无法持续运行</translation></message>
<message><source>The engine stopped</source><translation>引擎已停止</translation></message>
<message><source>The engine stopped in the middle of it. The text so far is kept.</source><translation>引擎中途停止。已写的内容会保留。</translation></message>
<message><source>The file cannot be read. Choose one on this PC that you are allowed to open.</source><translation>无法读取文件。请选择此电脑上您有权打开的文件。</translation></message>
<message><source>The file cannot be written there. Choose another folder.</source><translation>无法在该处写入文件。请选择其他文件夹。</translation></message>
<message><source>The file of your chats is damaged, and no new one can be written beside it.</source><translation>您的聊天文件已损坏，且无法在旁边写入新文件。</translation></message>
<message><source>The file of your chats was damaged</source><translation>您的聊天文件已损坏</translation></message>
<message><source>The folder of your chats cannot be written.</source><translation>无法写入您的聊天文件夹。</translation></message>
<message><source>The folder {folder} cannot be written, so they last only until Hearth is closed.</source><translation>无法写入文件夹 {folder}，因此这些设置只保持到 Hearth 关闭。</translation></message>
<message><source>The folder {folder} cannot be written.</source><translation>无法写入文件夹 {folder}。</translation></message>
<message><source>The list of models on this PC cannot be used.</source><translation>无法使用此电脑上的模型列表。</translation></message>
<message><source>The local server could not be switched on.</source><translation>未能开启本地服务器。</translation></message>
<message><source>The local server is not on</source><translation>本地服务器未开启</translation></message>
<message><source>The message is longer than what the model can see at once.</source><translation>消息超出了模型一次能看到的长度。</translation></message>
<message><source>The message was not answered</source><translation>消息未得到回答</translation></message>
<message><source>The model could not be loaded. Your chats are safe.</source><translation>未能加载模型。您的聊天安全。</translation></message>
<message><source>The model manager stopped several times in a row. You can keep chatting; nothing is lost.</source><translation>模型管理进程连续多次停止。您可以继续聊天，没有任何内容丢失。</translation></message>
<message><source>The model's chat template, which lays a chat out for it, does not work.</source><translation>模型的聊天模板（用于为其编排聊天）无法使用。</translation></message>
<message><source>The model's computation went wrong. If it happens again, its files are damaged.</source><translation>模型计算出错。若再次发生，说明其文件已损坏。</translation></message>
<message><source>The model's header would take too much memory. Choose another file of it, or another model.</source><translation>该模型的文件头会占用过多内存。请选择它的另一个文件，或选择其他模型。</translation></message>
<message><source>The prepared data does not belong to this model. In the settings, let its neurons be chosen automatically.</source><translation>为此模型准备的内容与其不符。请在设置中让其神经元自动选择。</translation></message>
<message><source>The server cannot be reached. The text so far is kept.</source><translation>无法连接服务器。已写的内容会保留。</translation></message>
<message><source>The server did not answer properly. The text so far is kept.</source><translation>服务器应答异常。已写的内容会保留。</translation></message>
<message><source>The server does not accept the key.</source><translation>服务器不接受此密钥。</translation></message>
<message><source>The window and the engine have different versions. Install Hearth again.</source><translation>窗口与引擎互不兼容：版本不同。请重新安装 Hearth。</translation></message>
<message><source>Their file is a link to a file that does not exist. Connect that disk, or remove the link.</source><translation>聊天文件是一个链接，指向的位置不存在。请连接该磁盘，或删除此链接。</translation></message>
<message><source>Their file is damaged. Repairing copies everything readable into a new file and keeps the old one.</source><translation>其文件已损坏。修复会将可读取的内容复制到新文件，并保留旧文件。</translation></message>
<message><source>There is not enough free memory. Close other programs, or give the model a smaller context.</source><translation>可用内存不足。请关闭其他程序，或给模型更小的上下文。</translation></message>
<message><source>They were saved by a newer Hearth and stay untouched. Install the newer version to read them.</source><translation>它们由更新版本的 Hearth 保存，不会改动。请安装新版本以读取。</translation></message>
<message><source>This does not seem to be such a server. Check the address.</source><translation>这似乎不是此类服务器。请检查地址。</translation></message>
<message><source>Use the CPU only</source><translation>仅使用 CPU</translation></message>
<message><source>Use the copy from before</source><translation>使用之前的副本</translation></message>
<message><source>What you write now is lost when Hearth is closed.</source><translation>现在写的内容会在 Hearth 关闭时丢失。</translation></message>
<message><source>Your chats are not saved right now</source><translation>您的聊天目前未保存</translation></message>
<message><source>Your chats cannot be saved</source><translation>无法保存您的聊天</translation></message>
<message><source>{chats} with {messages} could be read.</source><translation>可读取{chats}，共{messages}。</translation></message>
<message><source>{fact} The text so far is kept, and the model is being loaded again.</source><translation>{fact} 已写的内容会保留，正在重新加载模型。</translation></message>
<message><source>{fact} The text so far is kept.</source><translation>{fact} 已写的内容会保留。</translation></message>
<message><source>{model} does not fit right now</source><translation>{model} 目前放不下</translation></message>
<message><source>1 in 10 neurons works per word: fast once prepared for this PC.</source><translation>每个词只用 1/10 的神经元：准备好后很快。</translation></message>
<message><source>128 experts, of which 8 work on a word: much knowledge, little work.</source><translation>128 个专家，每个词用 8 个：知识多，计算少。</translation></message>
<message><source>A small DeepSeek of 2024: 6 of its 64 experts work on a word.</source><translation>2024 年的小型 DeepSeek：每个词只用 64 个专家中的 6 个。</translation></message>
<message><source>A strong all-round model for a GPU with 8 GB; thinks before it answers.</source><translation>适合 8 GB GPU 的强大通用模型；先思考再回答。</translation></message>
<message><source>A strong all-round model: reasoning, code, many languages.</source><translation>全能型强模型：推理、代码、多种语言。</translation></message>
<message><source>Among the best for a PC, and fast; needs 70 GB of RAM and VRAM together.</source><translation>PC 上最好的模型之一，而且快；内存加显存共需 70 GB。</translation></message>
<message><source>Among the best for a PC; slow unless the GPU is large.</source><translation>PC 上最好的模型之一；GPU 显存不大时较慢。</translation></message>
<message><source>Among the strongest that a GPU with 24 GB holds: reasoning, code, many languages.</source><translation>24 GB GPU 能容纳的最强模型之一：推理、代码、多种语言。</translation></message>
<message><source>An all-round chat model with a long context.</source><translation>上下文很长的全能对话模型。</translation></message>
<message><source>As published, in 61 files, for your own conversion.</source><translation>原始发布版，共 61 个文件，供自行转换。</translation></message>
<message><source>As published, with predictors; Hearth converts it.</source><translation>原始发布版，带预测器；由 Hearth 转换。</translation></message>
<message><source>Careful answers in many languages, good at code.</source><translation>多语言回答严谨，擅长代码。</translation></message>
<message><source>Chinese and English; fits a GPU with 8 GB.</source><translation>中文和英文；适合 8 GB 的 GPU。</translation></message>
<message><source>Compact and good at maths and reasoning.</source><translation>小巧，擅长数学和推理。</translation></message>
<message><source>Continues texts; 1 in 20 neurons works per word. Asks you to accept terms.</source><translation>续写文本；每个词只用 1/20 的神经元。需接受条款。</translation></message>
<message><source>Continues texts; 1 in 9 neurons works per word.</source><translation>续写文本；每个词只用 1/9 的神经元。</translation></message>
<message><source>Continues texts; LLaMA 2 with ReLU: 1 in 3 neurons works per word.</source><translation>续写文本；带 ReLU 的 LLaMA 2，每个词只用 1/3 的神经元。</translation></message>
<message><source>Continues texts; large, but most of it can stay in RAM.</source><translation>续写文本；很大，但大部分可留在内存中。</translation></message>
<message><source>Continues texts; made for research, 1 in 20 neurons works per word.</source><translation>续写文本；用于研究，每个词只用 1/20 的神经元。</translation></message>
<message><source>Continues texts; over 1 in 4 neurons works per word.</source><translation>续写文本；每个词用略多于 1/4 的神经元。</translation></message>
<message><source>Continues texts; the model that Bamboo DPO was made from.</source><translation>续写文本；Bamboo DPO 的基础模型。</translation></message>
<message><source>English; its training texts and code are open too.</source><translation>英文；训练文本和代码也是开放的。</translation></message>
<message><source>English; its training texts and code are open too; needs a GPU with 24 GB.</source><translation>英文；训练文本和代码也开放；需要 24 GB 的 GPU。</translation></message>
<message><source>European languages, tools and documents; fits a GPU with 12 GB.</source><translation>欧洲语言、工具和文档；适合 12 GB 的 GPU。</translation></message>
<message><source>European languages, tools and documents; fits a GPU with 8 GB.</source><translation>欧洲语言、工具和文档；适合 8 GB 的 GPU。</translation></message>
<message><source>Fast without a GPU: 4 of its 32 experts work on a word.</source><translation>没有 GPU 也快：每个词只用 32 个专家中的 4 个。</translation></message>
<message><source>Fast without a GPU: 6 of its 64 experts work on a word.</source><translation>没有 GPU 也快：每个词只用 64 个专家中的 6 个。</translation></message>
<message><source>Finds passages by their meaning, in many languages, fast on the CPU; not for chats.</source><translation>按含义查找段落，支持多种语言，在 CPU 上速度快；不用于对话。</translation></message>
<message><source>Finds passages of English documents by their meaning; not for chats.</source><translation>按含义查找英文文档中的段落；不用于对话。</translation></message>
<message><source>Finds passages of your documents by their meaning; not for chats.</source><translation>按含义查找文档中的段落；不用于聊天。</translation></message>
<message><source>Follows instructions and works with documents, in 12 languages.</source><translation>遵循指令，处理文档，支持 12 种语言。</translation></message>
<message><source>Follows instructions and works with documents; needs a GPU with 24 GB.</source><translation>遵循指令，处理文档；需要 24 GB 的 GPU。</translation></message>
<message><source>For PCs without a GPU.</source><translation>适合没有 GPU 的电脑。</translation></message>
<message><source>For programming with tools; needs 56 GB of RAM and VRAM together.</source><translation>用于借助工具编程；内存和显存共需 56 GB。</translation></message>
<message><source>For programming with tools; needs a GPU with 16 GB.</source><translation>用于借助工具编程；需要 16 GB 的 GPU。</translation></message>
<message><source>For programming; only a tenth of it works on a word, so it is fast.</source><translation>用于编程；每个词只用到十分之一，因此很快。</translation></message>
<message><source>Good all-round chat; only 1 in 7 neurons works per word, so it is fast.</source><translation>不错的全能对话模型；每个词只用 1/7 的神经元，因此很快。</translation></message>
<message><source>Good answers for its size, many languages, strong at maths and code.</source><translation>在同等大小中回答出色，多语言，擅长数学和代码。</translation></message>
<message><source>Good at code, in English and Chinese; fits a GPU with 12 GB.</source><translation>擅长代码，支持英文和中文；适合 12 GB 显存的 GPU。</translation></message>
<message><source>Knows more and stays fast without a GPU; needs 20 GB of RAM.</source><translation>知识更多，没有 GPU 也快；需要 20 GB 内存。</translation></message>
<message><source>Knows much and answers fast; needs 24 GB of RAM and VRAM together.</source><translation>知识丰富，回答快；内存和显存共需 24 GB。</translation></message>
<message><source>Knows much, answers at once and fast; many languages.</source><translation>知识丰富，直接且快速地回答；多语言。</translation></message>
<message><source>Large and strong; needs 80 GB of RAM and VRAM together.</source><translation>大而强；内存和显存共需 80 GB。</translation></message>
<message><source>Large, answers at once and fast; needs 56 GB of RAM and VRAM together.</source><translation>大型模型，直接快速回答；内存和显存共需 56 GB。</translation></message>
<message><source>Large, strong at code and reasoning; needs 80 GB of RAM and VRAM together.</source><translation>大型，擅长代码和推理；内存加显存共需 80 GB。</translation></message>
<message><source>Long documents and tools; 10 of its 72 experts work on a word.</source><translation>长文档和工具；每个词只用 72 个专家中的 10 个。</translation></message>
<message><source>Many languages: 2 of its 16 experts work on a word.</source><translation>多种语言：每个词只用 16 个专家中的 2 个。</translation></message>
<message><source>More knowledge than 7B; needs a GPU with 12 GB.</source><translation>知识比 7B 更多；需要 12 GB 显存的 GPU。</translation></message>
<message><source>More knowledge than 8B; fits a GPU with 12 GB.</source><translation>知识比 8B 更多；适合 12 GB 显存的 GPU。</translation></message>
<message><source>Reasoning over long texts.</source><translation>对长文本进行推理。</translation></message>
<message><source>Reasons about very long texts; quick only on a GPU with 32 GB.</source><translation>能对很长的文本推理；仅在 32 GB 显存的 GPU 上才快。</translation></message>
<message><source>Reasons well and answers fast: 4 of its 32 experts work on a word.</source><translation>推理好，回答快：每个词由 32 位专家中的 4 位处理。</translation></message>
<message><source>Reasons well over long texts; 6 of its 128 experts work on a word.</source><translation>擅长对长文本推理；每个词只用 128 个专家中的 6 个。</translation></message>
<message><source>Six European languages, long texts; thinks first if you like.</source><translation>六种欧洲语言，长文本；可按需先思考。</translation></message>
<message><source>Small and able; many languages, long texts.</source><translation>小而能干；多种语言，长文本。</translation></message>
<message><source>Small and fast, for any PC.</source><translation>小而快，适合任何电脑。</translation></message>
<message><source>Small and quick; good for short questions.</source><translation>小而快；适合简短的问题。</translation></message>
<message><source>Small and quick; short questions and texts.</source><translation>小而快；适合简短的问题和文本。</translation></message>
<message><source>Small, English, trained on openly documented texts.</source><translation>小巧，英语，用公开记录的文本训练。</translation></message>
<message><source>Small, for long documents.</source><translation>小型，适合长文档。</translation></message>
<message><source>Small, many languages; runs well on any PC.</source><translation>小巧，多语言；任何 PC 都能流畅运行。</translation></message>
<message><source>Small, with European languages.</source><translation>小型，支持欧洲语言。</translation></message>
<message><source>Small; Korean, English and Spanish. Not for commercial use.</source><translation>小型；韩文、英文和西班牙文。不可商用。</translation></message>
<message><source>Small; fast without a GPU too.</source><translation>小型；没有 GPU 也快。</translation></message>
<message><source>Strong all-round model with European languages; needs a GPU with 16 GB.</source><translation>支持欧洲语言的全能型强模型；需要 16 GB 显存的 GPU。</translation></message>
<message><source>Strong at code and long answers; needs a GPU with 24 GB.</source><translation>擅长代码和长回答；需要 24 GB 显存的 GPU。</translation></message>
<message><source>Strong at code and long tasks; fits a GPU with 24 GB.</source><translation>擅长代码和长任务；适合 24 GB 的 GPU。</translation></message>
<message><source>Strong at code and tools; fast, because only 4 of its 64 experts work on each word.</source><translation>擅长代码和工具，速度快：每个词只用 64 个专家中的 4 个。</translation></message>
<message><source>Strong at reasoning and code; needs a GPU with 24 GB.</source><translation>擅长推理和代码；需要 24 GB 显存的 GPU。</translation></message>
<message><source>The base model in full precision.</source><translation>基础模型的全精度版。</translation></message>
<message><source>The largest Gemma 3; needs a GPU with 24 GB.</source><translation>最大的 Gemma 3；需要 24 GB 显存的 GPU。</translation></message>
<message><source>The largest Gemma 4, well written; needs a GPU with 24 GB.</source><translation>最大的 Gemma 4，文笔好；需要 24 GB 的 GPU。</translation></message>
<message><source>The newer Qwen3 4B: answers at once, many languages, long texts.</source><translation>较新的 Qwen3 4B：直接回答，多语言，长文本。</translation></message>
<message><source>The same in full precision: slower, hardly better.</source><translation>同一模型的全精度版：更慢，几乎不更好。</translation></message>
<message><source>The smallest; to try things out, not to rely on.</source><translation>最小的模型；用于试用，不宜依赖。</translation></message>
<message><source>The strongest dense Qwen3; needs a GPU with 24 GB.</source><translation>最强的稠密 Qwen3；需要 24 GB 显存的 GPU。</translation></message>
<message><source>Thinks at length before it answers: for hard questions.</source><translation>回答前深入思考：适合难题。</translation></message>
<message><source>Thinks at length before it answers; strong at maths for its size.</source><translation>回答前深入思考；就其大小而言擅长数学。</translation></message>
<message><source>Tiny and quick, many languages; thinks before it answers.</source><translation>极小且快，多语言；回答前先思考。</translation></message>
<message><source>Tiny and quick; short questions and summaries.</source><translation>极小且快；适合简短的问题和摘要。</translation></message>
<message><source>Tiny, many languages; runs on any PC.</source><translation>极小，多语言；任何 PC 都能运行。</translation></message>
<message><source>Tiny; short texts in Chinese and English.</source><translation>极小；中文和英文短文本。</translation></message>
<message><source>Translates between 33 languages; small and fast.</source><translation>在 33 种语言之间翻译；小而快。</translation></message>
<message><source>Very fast, without a GPU too.</source><translation>非常快，没有 GPU 也一样。</translation></message>
<message><source>Very large, for code and long tasks; needs 150 GB of RAM and VRAM together.</source><translation>非常大，用于代码和长任务；内存加显存共需 150 GB。</translation></message>
<message><source>Very large; needs 80 GB of RAM and GPU memory together.</source><translation>非常大；内存和显存合计需要 80 GB。</translation></message>
<message><source>Very small and very fast.</source><translation>非常小，非常快。</translation></message>
<message><source>Very small, English; runs on anything.</source><translation>非常小，英语；任何设备都能运行。</translation></message>
<message><source>Very small: for simple tasks and for trying things out.</source><translation>非常小：用于简单任务和试用。</translation></message>
<message><source>Well-written answers in many languages on almost any PC.</source><translation>几乎任何 PC 都能运行，多语言回答，文笔好。</translation></message>
<message><source>Well-written answers in many languages; fits a GPU with 12 GB.</source><translation>多语言回答，文笔好；适合 12 GB 显存的 GPU。</translation></message>
<message><source>Well-written answers on a small PC.</source><translation>在小型电脑上也能写出好答案。</translation></message>
<message><source>Well-written answers, fast: 8 of its 128 experts work on a word.</source><translation>文笔好，速度快：每个词只用 128 个专家中的 8 个。</translation></message>
<message><source>Well-written answers; short context.</source><translation>回答文笔好；上下文较短。</translation></message>
</context>
</TS>
