<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
<name>Hearth</name>
<message><source>Every new chat with {name} starts with these choices</source><translation>Jeder neue Chat mit {name} beginnt mit dieser Auswahl</translation></message>
<message><source>New chats with {name} use the settings again</source><translation>Neue Chats mit {name} folgen wieder den Einstellungen</translation></message>
<message><source>No model is loaded.</source><translation>Es ist kein Modell geladen.</translation></message>
<message><source>Saved as {name}</source><translation>Gespeichert als {name}</translation></message>
<message><source>This chat uses a server. Only answers from this PC can be compared.</source><translation>Dieser Chat geht an einen Server: Vergleichen lässt sich nur, was dieser PC beantwortet.</translation></message>
<message><source>This model computes every neuron anyway, so there is nothing to compare.</source><translation>Dieses Modell berechnet ohnehin jedes Neuron, es gibt also nichts zu vergleichen.</translation></message>
<message><source>{model} here: {costs}.</source><translation>{model} hier: {costs}.</translation></message>
<message><source>Already in memory</source><translation>Bereits im Speicher</translation></message>
<message><source>Another program on this PC</source><translation>Anderes Programm auf diesem PC</translation></message>
<message><source>Answer</source><translation>Antwort</translation></message>
<message><source>Context</source><translation>Kontext</translation></message>
<message><source>Cut off at the length limit</source><translation>An der Längengrenze abgebrochen</translation></message>
<message><source>Cut off: the context is full</source><translation>Abgebrochen: Der Kontext ist voll</translation></message>
<message><source>Dense</source><translation>Dicht</translation></message>
<message><source>Exact</source><translation>Exakt</translation></message>
<message><source>First token after</source><translation>Erstes Token nach</translation></message>
<message><source>Guessed by a smaller model</source><translation>Von einem kleineren Modell geraten</translation></message>
<message><source>Guessed tokens</source><translation>Vermutete Token</translation></message>
<message><source>High</source><translation>Hoch</translation></message>
<message><source>Interrupted: Hearth closed in mid-answer</source><translation>Unterbrochen: Hearth wurde während der Antwort geschlossen</translation></message>
<message><source>Left out of the context</source><translation>Nicht mehr im Kontext</translation></message>
<message><source>Loaded from disk</source><translation>Von der Platte geladen</translation></message>
<message><source>Low</source><translation>Niedrig</translation></message>
<message><source>Medium</source><translation>Mittel</translation></message>
<message><source>Model</source><translation>Modell</translation></message>
<message><source>Neurons</source><translation>Neuronen</translation></message>
<message><source>Neurons computed</source><translation>Berechnete Neuronen</translation></message>
<message><source>Neurons that fired</source><translation>Aktive Neuronen</translation></message>
<message><source>Not finished: the engine failed</source><translation>Nicht beendet: Die Engine ist ausgefallen</translation></message>
<message><source>Not finished: the server stopped answering</source><translation>Nicht fertig: der Server hat nicht geantwortet</translation></message>
<message><source>Off</source><translation>Aus</translation></message>
<message><source>On</source><translation>An</translation></message>
<message><source>Prompt</source><translation>Prompt</translation></message>
<message><source>Reading</source><translation>Lesen</translation></message>
<message><source>Server, not on this PC</source><translation>Server, nicht auf diesem PC</translation></message>
<message><source>Share on the GPU</source><translation>Anteil auf der GPU</translation></message>
<message><source>Sparse</source><translation>Sparsam</translation></message>
<message><source>Stopped</source><translation>Gestoppt</translation></message>
<message><source>Summarised</source><translation>Zusammengefasst</translation></message>
<message><source>Thought</source><translation>Gedankengang</translation></message>
<message><source>Thought for {time}</source><translation>{time} nachgedacht</translation></message>
<message><source>Time</source><translation>Zeit</translation></message>
<message><source>Writing</source><translation>Schreiben</translation></message>
<message><source>first after {time}</source><translation>erstes nach {time}</translation></message>
<message><source>from {server}, another program on this PC</source><translation>von {server}, einem anderen Programm auf diesem PC</translation></message>
<message><source>from {server}, not on this PC</source><translation>von {server}, nicht auf diesem PC</translation></message>
<message><source>under 1%</source><translation>unter 1%</translation></message>
<message numerus="yes"><source>{n} messages</source><translation><numerusform>{n} Nachricht</numerusform><numerusform>{n} Nachrichten</numerusform></translation></message>
<message><source>{n} of {total} right</source><translation>{n} von {total} richtig</translation></message>
<message numerus="yes"><source>{n} tokens</source><translation><numerusform>{n} Token</numerusform><numerusform>{n} Token</numerusform></translation></message>
<message><source>{share} of neurons</source><translation>{share} der Neuronen</translation></message>
<message><source>{tokens} in {time}</source><translation>{tokens} in {time}</translation></message>
<message><source>{used} of {total}</source><translation>{used} von {total}</translation></message>
<message><source>Both are about as fast here.</source><translation>Beide sind hier etwa gleich schnell.</translation></message>
<message><source>Both wrote the same words.</source><translation>Beide schrieben dieselben Wörter.</translation></message>
<message numerus="yes"><source>The first {n} words are the same; then they differ.</source><translation><numerusform>Das erste Wort ist gleich, dann gehen sie auseinander.</numerusform><numerusform>Die ersten {n} Wörter sind gleich, dann gehen sie auseinander.</numerusform></translation></message>
<message><source>They differ from the first word.</source><translation>Sie unterscheiden sich vom ersten Wort an.</translation></message>
<message><source>{faster} is {times} times as fast as {slower} here.</source><translation>{faster} ist hier {times}-mal so schnell wie {slower}.</translation></message>
<message><source>Auto</source><translation>Auto</translation></message>
<message><source>Not measured yet. After some answers, this shows how fast each one is.</source><translation>Noch nicht gemessen: Nach einigen Antworten steht hier, was jede Art kostet.</translation></message>
<message numerus="yes"><source>{rates}, in {n} answers on this PC</source><translation><numerusform>{rates}, in {n} Antwort auf diesem PC</numerusform><numerusform>{rates}, in {n} Antworten auf diesem PC</numerusform></translation></message>
<message><source>Concise</source><translation>Knapp</translation></message>
<message><source>Copy editor</source><translation>Korrektor</translation></message>
<message><source>Patient teacher</source><translation>Geduldiger Lehrer</translation></message>
<message><source>Programmer</source><translation>Programmierer</translation></message>
<message><source>{name} contains no personas.</source><translation>{name} enthält keine Personas.</translation></message>
<message><source>As in the settings, otherwise as the model's maker recommends</source><translation>Wie in den Einstellungen, sonst wie vom Modell empfohlen</translation></message>
<message><source>As is</source><translation>Unverändert</translation></message>
<message><source>Balanced</source><translation>Ausgewogen</translation></message>
<message><source>Creative</source><translation>Kreativ</translation></message>
<message><source>Facts, code, translations</source><translation>Fakten, Code, Übersetzungen</translation></message>
<message><source>Precise</source><translation>Präzise</translation></message>
<message><source>Stories, ideas</source><translation>Geschichten, Ideen</translation></message>
<message><source>{name} contains no presets.</source><translation>{name} enthält keine Vorgaben.</translation></message>
<message><source>Explain</source><translation>Erklären</translation></message>
<message><source>Explain {topic} so that {reader} understands it.</source><translation>Erkläre {topic} so, dass {reader} es versteht.</translation></message>
<message><source>Summarise</source><translation>Zusammenfassen</translation></message>
<message><source>Summarise this text in at most {number} sentences:</source><translation>Fasse diesen Text in höchstens {number} Sätzen zusammen:</translation></message>
<message><source>Translate</source><translation>Übersetzen</translation></message>
<message><source>Translate this text into {language}:</source><translation>Übersetze diesen Text in diese Sprache: {language}</translation></message>
<message><source>language</source><translation>Sprache</translation></message>
<message><source>number</source><translation>Anzahl</translation></message>
<message><source>reader</source><translation>Zielgruppe</translation></message>
<message><source>text</source><translation>Text</translation></message>
<message><source>topic</source><translation>Thema</translation></message>
<message><source>{name} contains no prompts.</source><translation>{name} enthält keine Prompts.</translation></message>
<message><source>Chat moved to the bin</source><translation>Chat in den Papierkorb gelegt</translation></message>
<message><source>Hearth asks again before every call</source><translation>Hearth fragt vor jedem Aufruf wieder</translation></message>
<message><source>Recording stopped</source><translation>Aufzeichnung beendet</translation></message>
<message><source>Recording the tokens of this chat</source><translation>Die Token dieses Chats werden aufgezeichnet</translation></message>
<message><source>The model repeated its calls of tools, so they were not run again</source><translation>Das Modell wiederholte seine Werkzeugaufrufe, daher wurden sie nicht noch einmal ausgeführt</translation></message>
<message><source>Chat pinned</source><translation>Chat angeheftet</translation></message>
<message><source>Chat restored</source><translation>Chat wiederhergestellt</translation></message>
<message><source>Chat unpinned</source><translation>Chat gelöst</translation></message>
<message><source>Moved to “{folder}”</source><translation>Verschoben nach „{folder}“</translation></message>
<message><source>Moved to “{folder}”, which already existed</source><translation>Verschoben nach „{folder}“, den es schon gab</translation></message>
<message><source>Removed from “{folder}”</source><translation>Aus „{folder}“ herausgenommen</translation></message>
<message><source>Removed from “{folder}”: {chats}</source><translation>Aus „{folder}“ herausgenommen: {chats}</translation></message>
<message><source>There is no chat in this file</source><translation>In dieser Datei ist kein Chat</translation></message>
<message><source>With your next message, the instructions and notes of this project go to {host}.</source><translation>Mit Ihrer nächsten Nachricht gehen die Anweisungen und Notizen dieses Projekts an {host}.</translation></message>
<message><source>Your next message sends this whole chat and its attachments to {host}.</source><translation>Ihre nächste Nachricht sendet diesen ganzen Chat mit allen Anhängen an {host}.</translation></message>
<message numerus="yes"><source>{n} chats</source><translation><numerusform>{n} Chat</numerusform><numerusform>{n} Chats</numerusform></translation></message>
<message numerus="yes"><source>{n} chats deleted</source><translation><numerusform>{n} Chat gelöscht</numerusform><numerusform>{n} Chats gelöscht</numerusform></translation></message>
<message numerus="yes"><source>{n} chats exported to {name}</source><translation><numerusform>{n} Chat nach {name} exportiert</numerusform><numerusform>{n} Chats nach {name} exportiert</numerusform></translation></message>
<message numerus="yes"><source>{n} chats imported</source><translation><numerusform>{n} Chat importiert</numerusform><numerusform>{n} Chats importiert</numerusform></translation></message>
<message numerus="yes"><source>{n} chats were already here</source><translation><numerusform>{n} Chat war schon hier</numerusform><numerusform>{n} Chats waren schon hier</numerusform></translation></message>
<message numerus="yes"><source>{n} were already here</source><translation><numerusform>{n} war schon hier</numerusform><numerusform>{n} waren schon hier</numerusform></translation></message>
<message><source>{server} on this PC</source><translation>{server} auf diesem PC</translation></message>
<message><source>Answer deleted</source><translation>Antwort gelöscht</translation></message>
<message><source>Message deleted</source><translation>Nachricht gelöscht</translation></message>
<message><source>Question and answer deleted</source><translation>Frage und Antwort gelöscht</translation></message>
<message><source>Still answering: stop it first, or wait</source><translation>Es wird noch geantwortet: Stoppen Sie zuerst, oder warten Sie</translation></message>
<message><source>The original messages are used again, as far as they fit</source><translation>Die ursprünglichen Nachrichten werden wieder verwendet, soweit sie passen</translation></message>
<message numerus="yes"><source>{n} messages deleted</source><translation><numerusform>{n} Nachricht gelöscht</numerusform><numerusform>{n} Nachrichten gelöscht</numerusform></translation></message>
<message><source>This model</source><translation>Dieses Modell</translation></message>
<message><source>{name} has no predictors, so its neurons are chosen automatically</source><translation>{name} bringt keine Prädiktoren mit: Seine Neuronen werden automatisch gewählt</translation></message>
<message><source>Page of an answer</source><translation>Seite aus einer Antwort</translation></message>
<message><source>SVG of an answer</source><translation>SVG aus einer Antwort</translation></message>
<message><source>Another version from message {number} on</source><translation>Andere Version ab Nachricht {number}</translation></message>
<message><source>Tool: {name}</source><translation>Werkzeug: {name}</translation></message>
<message><source>Version {which} of {count}</source><translation>Version {which} von {count}</translation></message>
<message><source>failed</source><translation>fehlgeschlagen</translation></message>
<message><source>not run</source><translation>nicht ausgeführt</translation></message>
<message><source>refused</source><translation>abgelehnt</translation></message>
<message numerus="yes"><source>{n} pages</source><translation><numerusform>{n} Seite</numerusform><numerusform>{n} Seiten</numerusform></translation></message>
<message><source>Attached: {name}</source><translation>Angehängt: {name}</translation></message>
<message><source>It contains no chats that Hearth can read. Choose an export of Hearth, ChatGPT, Claude, LM Studio, Jan, Open WebUI or GPT4All.</source><translation>Darin sind keine Chats, die Hearth lesen kann. Wählen Sie einen Export von Hearth, ChatGPT, Claude, LM Studio, Jan, Open WebUI oder GPT4All.</translation></message>
<message><source>Reading it takes more memory than Hearth uses for an import.</source><translation>Zum Lesen ist mehr Speicher nötig, als Hearth für einen Import verwendet.</translation></message>
<message><source>The process that read it ended unexpectedly. Try again.</source><translation>Der Prozess, der sie las, endete unerwartet. Versuchen Sie es noch einmal.</translation></message>
<message><source>There are more than 100,000 files in it. Choose a folder with fewer.</source><translation>Darin sind mehr als 100.000 Dateien. Wählen Sie einen Ordner mit weniger.</translation></message>
<message><source>This ZIP file is damaged. Download it again.</source><translation>Diese ZIP-Datei ist beschädigt. Laden Sie sie noch einmal herunter.</translation></message>
<message><source>This ZIP file is protected by a password. Unpack it and choose the folder.</source><translation>Diese ZIP-Datei ist mit einem Passwort geschützt. Entpacken Sie sie und wählen Sie den Ordner.</translation></message>
<message><source>This ZIP file would unpack to more than 200 times its size. No real export does.</source><translation>Diese ZIP-Datei wäre entpackt mehr als 200-mal so groß. Kein echter Export ist so.</translation></message>
<message><source>This file is not JSON, or it is cut off.</source><translation>Diese Datei ist kein JSON oder abgeschnitten.</translation></message>
<message><source>Message removed</source><translation>Nachricht entfernt</translation></message>
<message><source>A note can have {most} characters at most. Shorten it.</source><translation>Eine Notiz kann höchstens {most} Zeichen haben. Kürzen Sie sie.</translation></message>
<message><source>There is nothing to add.</source><translation>Es gibt nichts hinzuzufügen.</translation></message>
<message><source>{name} could not be used: {why}.</source><translation>{name} konnte nicht verwendet werden: {why}.</translation></message>
<message><source>{name} could not be written: the disk is full.</source><translation>{name} konnte nicht geschrieben werden: Der Datenträger ist voll.</translation></message>
<message><source>{name} is larger than {most} MB.</source><translation>{name} ist größer als {most} MB.</translation></message>
<message><source>{name} is missing.</source><translation>{name} fehlt.</translation></message>
<message><source>{name} is not a file.</source><translation>{name} ist keine Datei.</translation></message>
<message><source>{name} is not a text in UTF-8. Save it as UTF-8.</source><translation>{name} ist kein Text in UTF-8. Speichern Sie die Datei als UTF-8.</translation></message>
<message><source>Comparison stopped</source><translation>Vergleich beendet</translation></message>
<message><source>This file contains more values than Hearth reads.</source><translation>Diese Datei enthält mehr Werte, als Hearth liest.</translation></message>
<message><source>This file does not contain chats that Hearth exported.</source><translation>Diese Datei enthält keine von Hearth exportierten Chats.</translation></message>
<message><source>This file is damaged: in {where}, {what} is wrong.</source><translation>Diese Datei ist beschädigt: In {where} stimmt {what} nicht.</translation></message>
<message><source>This file is not a text in UTF-8.</source><translation>Diese Datei ist kein Text in UTF-8.</translation></message>
<message><source>This file was written by a later version of Hearth.</source><translation>Diese Datei wurde von einer neueren Version von Hearth geschrieben.</translation></message>
<message><source>an id that occurs twice</source><translation>eine doppelt vergebene Kennung</translation></message>
<message><source>chat {number}</source><translation>Chat {number}</translation></message>
<message><source>the arguments</source><translation>die Argumente</translation></message>
<message><source>the attachment itself</source><translation>der Anhang selbst</translation></message>
<message><source>the call itself</source><translation>der Aufruf selbst</translation></message>
<message><source>the chat itself</source><translation>der Chat selbst</translation></message>
<message><source>the choices</source><translation>die Auswahl</translation></message>
<message><source>the file</source><translation>der Datei</translation></message>
<message><source>the id</source><translation>die Kennung</translation></message>
<message><source>the kind</source><translation>die Art</translation></message>
<message><source>the leaf</source><translation>das Ende</translation></message>
<message><source>the message itself</source><translation>die Nachricht selbst</translation></message>
<message><source>the number of pages</source><translation>die Seitenzahl</translation></message>
<message><source>the parent</source><translation>der Vorgänger</translation></message>
<message><source>the place of the source</source><translation>die Stelle der Quelle</translation></message>
<message><source>the role</source><translation>die Rolle</translation></message>
<message><source>the source</source><translation>die Quelle</translation></message>
<message><source>the state</source><translation>der Zustand</translation></message>
<message><source>the statistic {name}</source><translation>die Angabe {name}</translation></message>
<message><source>the statistics</source><translation>die Statistik</translation></message>
<message><source>the version</source><translation>die Version</translation></message>
<message><source>{where}, attachment {number}</source><translation>{where}, Anhang {number}</translation></message>
<message><source>{where}, call {number}</source><translation>{where}, Aufruf {number}</translation></message>
<message><source>{where}, message {number}</source><translation>{where}, Nachricht {number}</translation></message>
<message><source>Cut off at the limit</source><translation>An der Grenze abgebrochen</translation></message>
<message><source>Instructions</source><translation>Anweisungen</translation></message>
<message><source>Interrupted</source><translation>Unterbrochen</translation></message>
<message><source>Not finished</source><translation>Nicht beendet</translation></message>
<message><source>This file is larger than {most} MiB. Hearth does not read files of that size.</source><translation>Diese Datei ist größer als {most} MiB, die liest Hearth nicht.</translation></message>
<message><source>You</source><translation>Sie</translation></message>
<message><source>New chat</source><translation>Neuer Chat</translation></message>
<message><source>Hearth keeps at most {most}.</source><translation>Mehr als {most} können nicht behalten werden.</translation></message>
<message><source>{name} contains nothing that Hearth exported.</source><translation>{name} enthält nichts, was Hearth exportiert hat.</translation></message>
<message><source>{name} could not be read: {why}.</source><translation>{name} konnte nicht gelesen werden: {why}.</translation></message>
<message><source>{name} is not a JSON file.</source><translation>{name} ist keine JSON-Datei.</translation></message>
<message><source>{name} was written by a newer Hearth.</source><translation>{name} wurde von einem neueren Hearth geschrieben.</translation></message>
<message numerus="yes"><source>{n} threads</source><translation><numerusform>{n} Thread</numerusform><numerusform>{n} Threads</numerusform></translation></message>
<message><source>A tiny demonstration model that answers simple questions and tells small stories.</source><translation>Ein winziges Demonstrationsmodell, das einfache Fragen beantwortet und kleine Geschichten erzählt.</translation></message>
<message><source>Estimated for the model as prepared for this PC.</source><translation>Geschätzt für das Modell, wie es nach dem Vorbereiten läuft.</translation></message>
<message><source>Estimated from models of the same family.</source><translation>Nach Modellen derselben Familie geschätzt.</translation></message>
<message><source>Estimated without predictors; preparing can train some and make it faster.</source><translation>Ohne Prädiktoren geschätzt; das Vorbereiten kann welche trainieren und es schneller machen.</translation></message>
<message><source>Getting ready, {done} of {total} (once for this PC)</source><translation>Vorbereitung, {done} von {total} (einmalig auf diesem PC)</translation></message>
<message><source>Loading</source><translation>Laden</translation></message>
<message><source>No GPU found: runs on {cores} · {memory}</source><translation>Keine GPU gefunden, die CPU rechnet: {cores} · {memory}</translation></message>
<message><source>No model</source><translation>Kein Modell</translation></message>
<message><source>No usable GPU: runs on {cores} · {memory}</source><translation>Keine nutzbare GPU, die CPU rechnet: {cores} · {memory}</translation></message>
<message><source>Not loaded</source><translation>Nicht geladen</translation></message>
<message><source>Not measured on this PC yet; estimated from similar machines.</source><translation>Auf diesem PC noch nicht gemessen; nach ähnlichen PCs geschätzt.</translation></message>
<message numerus="yes"><source>Reading {n} tokens</source><translation><numerusform>Lesen von {n} Token</numerusform><numerusform>Lesen von {n} Token</numerusform></translation></message>
<message><source>Ready</source><translation>Bereit</translation></message>
<message><source>Restarting</source><translation>Neustart</translation></message>
<message><source>Stopping</source><translation>Stoppen</translation></message>
<message><source>Summarising earlier messages</source><translation>Frühere Nachrichten werden zusammengefasst</translation></message>
<message><source>The GPU cannot compute this model yet, so it runs on the CPU alone.</source><translation>Die GPU kann dieses Modell noch nicht rechnen; es läuft nur auf der CPU.</translation></message>
<message><source>Thinking</source><translation>Nachdenken</translation></message>
<message><source>no NVIDIA driver is installed</source><translation>kein NVIDIA-Treiber ist installiert</translation></message>
<message><source>the GPU needs a reset: restart the computer</source><translation>die GPU muss zurückgesetzt werden: Starten Sie den Computer neu</translation></message>
<message><source>the GPU was lost: restart the computer</source><translation>die Verbindung zur GPU ging verloren: Starten Sie den Computer neu</translation></message>
<message><source>the NVIDIA driver is installed but not loaded</source><translation>der NVIDIA-Treiber ist installiert, aber nicht geladen</translation></message>
<message><source>the NVIDIA driver was updated while it ran: restart the computer</source><translation>der NVIDIA-Treiber wurde im Betrieb aktualisiert: Starten Sie den Computer neu</translation></message>
<message><source>the machine has no GPU</source><translation>dieser PC hat keine GPU</translation></message>
<message><source>{memory} RAM</source><translation>{memory} RAM</translation></message>
<message numerus="yes"><source>{n} cores</source><translation><numerusform>{n} Kern</numerusform><numerusform>{n} Kerne</numerusform></translation></message>
<message><source>A token goes through {used} of the {n} experts of each layer.</source><translation>Ein Token geht in jeder Schicht durch {used} der {n} Experten.</translation></message>
<message><source>Ask something: the experts that are chosen for each token light up here.</source><translation>Fragen Sie etwas: Hier leuchten die Experten auf, die für jedes Token gewählt werden.</translation></message>
<message><source>Ask something: the neurons that fire for each token light up here.</source><translation>Fragen Sie etwas: Hier leuchten die Neuronen auf, die für jedes Token feuern.</translation></message>
<message><source>Ask something: the rate of the answer is drawn here.</source><translation>Fragen Sie etwas: Hier erscheint die Rate der Antwort.</translation></message>
<message><source>Attention</source><translation>Attention</translation></message>
<message><source>CPU load</source><translation>Prozessor, Last</translation></message>
<message><source>Choosing the token</source><translation>Wahl des Tokens</translation></message>
<message><source>Cold neurons</source><translation>Kalte Neuronen</translation></message>
<message><source>Experts</source><translation>Experten</translation></message>
<message><source>From sending to the first token</source><translation>Vom Senden bis zum ersten Token</translation></message>
<message><source>Head</source><translation>Ausgabekopf</translation></message>
<message><source>Hearth {size}</source><translation>Hearth {size}</translation></message>
<message><source>Hot neurons</source><translation>Heiße Neuronen</translation></message>
<message><source>How fast the prompt was read</source><translation>Wie schnell der Prompt gelesen wurde</translation></message>
<message><source>Memory does not hold all experts. Those that it lacks are read from the disk for each token.</source><translation>Der Speicher fasst nicht alle Experten. Was ihm fehlt, wird für jedes Token vom Datenträger gelesen.</translation></message>
<message><source>Memory used</source><translation>Belegter Speicher</translation></message>
<message><source>Moved to the GPU since the model was loaded: {n}.</source><translation>Seit dem Laden des Modells auf die GPU geholt: {n}.</translation></message>
<message><source>No model is loaded</source><translation>Es ist kein Modell geladen</translation></message>
<message><source>Norms and exchange</source><translation>Normen und Austausch</translation></message>
<message><source>Norms, the embedding, and the time between two tokens</source><translation>Normen, die Einbettung und was zwischen zwei Token liegt</translation></message>
<message><source>Not zero: {share}.</source><translation>Einen anderen Wert als null hatten {share}.</translation></message>
<message><source>Of all neurons, those computed for a token.</source><translation>Von allen Neuronen die, die für ein Token berechnet wurden.</translation></message>
<message><source>Of the experts that a token uses, those that are on the GPU. The CPU computes the others.</source><translation>Von den Experten, die ein Token nutzt, die auf der GPU. Die anderen berechnet die CPU.</translation></message>
<message><source>Other</source><translation>Anderes</translation></message>
<message><source>Predictor</source><translation>Prädiktor</translation></message>
<message><source>Sampling</source><translation>Sampling</translation></message>
<message><source>Share of the computed neurons that the GPU computes</source><translation>Von den berechneten Neuronen die, die die GPU berechnet</translation></message>
<message><source>The CPU waits for the GPU, which works meanwhile</source><translation>Die CPU wartet auf die GPU, die währenddessen arbeitet</translation></message>
<message><source>The GPU waits for the CPU, which works meanwhile</source><translation>Die GPU wartet auf die CPU, die währenddessen arbeitet</translation></message>
<message><source>Waiting</source><translation>Warten</translation></message>
<message><source>active neurons are not counted here</source><translation>welche davon aktiv sind, wird hier nicht gezählt</translation></message>
<message><source>all experts are in RAM, and the CPU computes them</source><translation>alle Experten sind im RAM, und die CPU berechnet sie</translation></message>
<message><source>all experts are on the GPU</source><translation>alle Experten sind auf der GPU</translation></message>
<message><source>bright: chosen often</source><translation>hell: oft gewählt</translation></message>
<message><source>bright: fired for one token</source><translation>hell: war für ein Token aktiv</translation></message>
<message><source>experts used</source><translation>Experten genutzt</translation></message>
<message><source>first token</source><translation>erstes Token</translation></message>
<message><source>from the disk</source><translation>vom Datenträger</translation></message>
<message><source>mean over the last answer</source><translation>Mittel der letzten Antwort</translation></message>
<message><source>mean {rate} over this answer</source><translation>im Mittel {rate} in dieser Antwort</translation></message>
<message><source>most chosen at the bottom</source><translation>die am häufigsten gewählten unten</translation></message>
<message><source>neurons active</source><translation>Neuronen aktiv</translation></message>
<message><source>of {total}</source><translation>von {total}</translation></message>
<message><source>on the GPU</source><translation>auf der GPU</translation></message>
<message><source>one column per layer</source><translation>eine Spalte je Schicht</translation></message>
<message><source>one column per layer · this model uses every neuron for every token</source><translation>eine Spalte je Schicht · jedes Neuron dieses Modells arbeitet für jedes Token</translation></message>
<message><source>one column per layer, busiest at the bottom</source><translation>eine Spalte je Schicht, die eifrigsten unten</translation></message>
<message><source>reading</source><translation>Lesen</translation></message>
<message><source>the CPU computes all experts</source><translation>die CPU berechnet alle Experten</translation></message>
<message><source>the {part} on the GPU do {share} of the work</source><translation>die {part} auf der GPU leisten {share} der Arbeit</translation></message>
<message><source>{model} is answering</source><translation>{model} antwortet</translation></message>
<message><source>{model} is answering in “{chat}”</source><translation>{model} antwortet in „{chat}“</translation></message>
<message><source>{name} load</source><translation>{name} Last</translation></message>
<message><source>{name}, load</source><translation>{name}, Last</translation></message>
<message><source>{name}, memory</source><translation>{name}, Speicher</translation></message>
<message><source>{used} of {n}</source><translation>{used} von {n}</translation></message>
<message><source>Couldn't save the report: {why}</source><translation>Der Bericht wurde nicht gespeichert: {why}</translation></message>
<message><source>Hearth is already open</source><translation>Hearth ist bereits geöffnet</translation></message>
<message><source>Hearth is already open.</source><translation>Hearth ist bereits geöffnet.</translation></message>
<message><source>Hearth is already running; its window was brought to the front.</source><translation>Hearth läuft bereits; sein Fenster wurde nach vorn geholt.</translation></message>
<message><source>It does not respond. Wait a moment and try again, or close it first.</source><translation>Es antwortet gerade nicht. Warten Sie kurz und starten Sie es erneut, oder beenden Sie es zuerst.</translation></message>
<message><source>Report (*.zip)</source><translation>Bericht (*.zip)</translation></message>
<message><source>Report saved</source><translation>Bericht gespeichert</translation></message>
<message><source>Save a report</source><translation>Bericht speichern</translation></message>
<message><source>This desktop has no system tray.</source><translation>Dieser Desktop hat kein Infofeld.</translation></message>
<message><source>an unexpected error; the log has details</source><translation>etwas Unvorhergesehenes; mehr steht im Protokoll</translation></message>
<message><source>answering</source><translation>antwortet</translation></message>
<message><source>downloading</source><translation>lädt herunter</translation></message>
<message><source>preparing a model</source><translation>bereitet ein Modell vor</translation></message>
<message><source>receiving an answer</source><translation>empfängt eine Antwort</translation></message>
<message><source>Access token</source><translation>Zugriffstoken</translation></message>
<message><source>Key of {name}</source><translation>Schlüssel: {name}</translation></message>
<message><source>Keys in this system's keyring</source><translation>Schlüssel im Schlüsselbund des Systems</translation></message>
<message><source>Local server</source><translation>Lokaler Server</translation></message>
<message><source>The keyring did not answer.</source><translation>Der Schlüsselbund hat nicht geantwortet.</translation></message>
<message><source>The rest</source><translation>Der Rest</translation></message>
<message><source>This system's keyring did not delete it.</source><translation>Der Schlüsselbund des Systems hat es nicht gelöscht.</translation></message>
<message><source>A tool waits for your permission</source><translation>Ein Werkzeug wartet auf Ihre Erlaubnis</translation></message>
<message><source>Open Hearth to allow or refuse it.</source><translation>Öffnen Sie Hearth, um es zu erlauben oder abzulehnen.</translation></message>
<message><source>Open Hearth to see why.</source><translation>Öffnen Sie Hearth, um den Grund zu sehen.</translation></message>
<message><source>Show</source><translation>Anzeigen</translation></message>
<message><source>The answer is ready</source><translation>Die Antwort ist da</translation></message>
<message><source>The answer was not finished</source><translation>Die Antwort wurde nicht beendet</translation></message>
<message><source>The model</source><translation>Das Modell</translation></message>
<message><source>{model} ended in {time}.</source><translation>{model} war nach {time} fertig.</translation></message>
<message numerus="yes"><source>{model} wrote {n} tokens in {time}.</source><translation><numerusform>{model} schrieb {n} Token in {time}.</numerusform><numerusform>{model} schrieb {n} Token in {time}.</numerusform></translation></message>
<message><source>Hearth is {reasons}</source><translation>Hearth: {reasons}</translation></message>
<message><source>{name} contains no text.</source><translation>{name} enthält keinen Text.</translation></message>
<message><source>Search my documents</source><translation>Meine Dokumente durchsuchen</translation></message>
<message><source>Couldn't search the documents. The answer does without them.</source><translation>Die Dokumente konnten nicht durchsucht werden. Die Antwort kommt ohne sie aus.</translation></message>
<message><source>There are {n} folders already. Remove one first.</source><translation>Es gibt schon {n} Ordner. Entfernen Sie zuerst einen.</translation></message>
<message><source>{name} is already there</source><translation>{name} ist schon vorhanden</translation></message>
<message><source>{name} is in {folder}, which is already there</source><translation>{name} liegt in {folder}, das schon vorhanden ist</translation></message>
<message><source>{name} is no longer searched</source><translation>{name} wird nicht mehr durchsucht</translation></message>
<message><source>{name} is not a folder</source><translation>{name} ist kein Ordner</translation></message>
<message><source>{name} was not attached. A message can have {most} attachments.</source><translation>{name} wurde nicht angehängt: Höchstens {most} gehen mit einer Nachricht.</translation></message>
<message><source>Couldn't read {name} within {seconds} s. Split it into smaller files.</source><translation>{name} konnte nicht innerhalb von {seconds} s gelesen werden. Teilen Sie die Datei in kleinere auf.</translation></message>
<message><source>Couldn't read {name}: Hearth doesn't read files of this kind. Save it as PDF, Word (.docx) or text.</source><translation>{name} konnte nicht gelesen werden: Hearth liest Dateien dieser Art nicht. Speichern Sie sie als PDF, Word-Datei (.docx) oder Text.</translation></message>
<message><source>Couldn't read {name}: it contains no text. Choose another file.</source><translation>{name} konnte nicht gelesen werden: Die Datei enthält keinen Text. Wählen Sie eine andere Datei.</translation></message>
<message><source>Couldn't read {name}: it has {size} MB, and files up to {most} MB are read. Split it.</source><translation>{name} konnte nicht gelesen werden: Die Datei hat {size} MB, gelesen werden Dateien bis {most} MB. Teilen Sie sie auf.</translation></message>
<message><source>Couldn't read {name}: it is damaged or incomplete. Download it or save it again.</source><translation>{name} konnte nicht gelesen werden: Die Datei ist beschädigt oder unvollständig. Laden oder speichern Sie sie erneut.</translation></message>
<message><source>Couldn't read {name}: it is protected by a password. Save a copy without the password.</source><translation>{name} konnte nicht gelesen werden: Die Datei ist durch ein Passwort geschützt. Speichern Sie eine Kopie ohne Passwort.</translation></message>
<message><source>Couldn't read {name}: its content is too large or too complex. Split it into smaller files.</source><translation>{name} konnte nicht gelesen werden: Der Inhalt ist zu groß oder zu komplex. Teilen Sie die Datei in kleinere auf.</translation></message>
<message><source>Couldn't read {name}: its pages are images without text, as in a scan. Run text recognition (OCR) on it first.</source><translation>{name} konnte nicht gelesen werden: Die Seiten sind Bilder ohne Text, wie bei einem Scan. Führen Sie zuerst eine Texterkennung (OCR) durch.</translation></message>
<message><source>Couldn't read {name}: the file no longer exists. Check if it was moved.</source><translation>{name} konnte nicht gelesen werden: Die Datei existiert nicht mehr. Prüfen Sie, ob sie verschoben wurde.</translation></message>
<message><source>Couldn't read {name}: the process that reads files did not start. Restart Hearth.</source><translation>{name} konnte nicht gelesen werden: Der Prozess, der Dateien liest, ist nicht gestartet. Starten Sie Hearth neu.</translation></message>
<message><source>Couldn't read {name}: {why}. Check that you may open it.</source><translation>{name} konnte nicht gelesen werden: {why}. Prüfen Sie, ob Sie die Datei öffnen dürfen.</translation></message>
<message><source>{name} is a folder. Choose the files in it.</source><translation>{name} ist ein Ordner. Wählen Sie die Dateien darin.</translation></message>
<message><source>{name} is not a file. Choose a file.</source><translation>{name} ist keine Datei. Wählen Sie eine Datei.</translation></message>
<message><source>A downloaded file is damaged. Trying again downloads only that file.</source><translation>Eine heruntergeladene Datei ist beschädigt. Ein neuer Versuch lädt nur diese Datei.</translation></message>
<message><source>Another Hearth has been changing the list of models for too long.</source><translation>Ein anderes Hearth ändert die Modellliste schon zu lange.</translation></message>
<message><source>Another Hearth is downloading.</source><translation>Ein anderes Hearth lädt gerade herunter.</translation></message>
<message><source>Choose another model</source><translation>Anderes Modell wählen</translation></message>
<message><source>Couldn't add the model</source><translation>Das Modell wurde nicht hinzugefügt</translation></message>
<message><source>Couldn't cancel the download</source><translation>Der Download wurde nicht beendet</translation></message>
<message><source>Couldn't check {model}</source><translation>{model} wurde nicht geprüft</translation></message>
<message><source>Couldn't delete {model}</source><translation>{model} wurde nicht gelöscht</translation></message>
<message><source>Couldn't download the update</source><translation>Das Update konnte nicht heruntergeladen werden</translation></message>
<message><source>Couldn't download {model}</source><translation>{model} wurde nicht heruntergeladen</translation></message>
<message><source>Couldn't estimate {model}</source><translation>Für {model} wurde keine Schätzung gemacht</translation></message>
<message><source>Couldn't install the update</source><translation>Das Update konnte nicht installiert werden</translation></message>
<message><source>Couldn't look for updates</source><translation>Nach Updates konnte nicht gesucht werden</translation></message>
<message><source>Couldn't move the models</source><translation>Die Modelle wurden nicht verschoben</translation></message>
<message><source>Couldn't open {model}</source><translation>{model} ließ sich nicht öffnen</translation></message>
<message><source>Couldn't pause the download</source><translation>Der Download wurde nicht angehalten</translation></message>
<message><source>Couldn't plan how to prepare {model}</source><translation>Die Vorbereitung von {model} wurde nicht geplant</translation></message>
<message><source>Couldn't prepare {model}</source><translation>{model} wurde nicht vorbereitet</translation></message>
<message><source>Couldn't read the catalogue of models</source><translation>Die Modelle zur Auswahl wurden nicht gelesen</translation></message>
<message><source>Couldn't read the list of downloads</source><translation>Die Downloads wurden nicht gelesen</translation></message>
<message><source>Couldn't read the list of models on this PC</source><translation>Die Modelle auf diesem PC wurden nicht gelesen</translation></message>
<message><source>Couldn't read this PC's hardware</source><translation>Dieser PC wurde nicht untersucht</translation></message>
<message><source>Couldn't remove the download from the list</source><translation>Der Download bleibt auf der Liste</translation></message>
<message><source>Couldn't repair {model}</source><translation>{model} wurde nicht repariert</translation></message>
<message><source>Couldn't restore {model}</source><translation>{model} kam nicht zurück</translation></message>
<message><source>Couldn't resume the download</source><translation>Der Download ging nicht weiter</translation></message>
<message><source>Couldn't save the access token</source><translation>Das Zugriffstoken wurde nicht behalten</translation></message>
<message><source>Couldn't save the measured speed</source><translation>Die Rate wurde nicht behalten</translation></message>
<message><source>Couldn't search</source><translation>Suche nicht möglich</translation></message>
<message><source>Couldn't store the access token in {place}: {why}.</source><translation>Das Zugangstoken lässt sich nicht in {place} speichern: {why}.</translation></message>
<message><source>Couldn't train while the PC was idle</source><translation>In der Leerlaufzeit wurde nichts trainiert</translation></message>
<message><source>Enter a token</source><translation>Token eingeben</translation></message>
<message><source>It didn't work. Your chats and models are safe.</source><translation>Es hat nicht funktioniert. Ihre Chats und Modelle sind sicher.</translation></message>
<message><source>It was requested with a value that is not allowed.</source><translation>Ein Wert der Anfrage passt nicht.</translation></message>
<message><source>Its file {what} has {size}; it had {before} when it was imported.</source><translation>Die Datei {what} hat {size}; beim Import hatte sie {before}.</translation></message>
<message><source>Its file {what} is missing.</source><translation>Die Datei {what} fehlt.</translation></message>
<message><source>Its files were moved or deleted.</source><translation>Seine Dateien wurden verschoben oder gelöscht.</translation></message>
<message><source>Its folder {what} is not there. If it is on another disk, connect that.</source><translation>Der Ordner {what} ist nicht da. Falls er auf einem anderen Datenträger liegt, schließen Sie diesen an.</translation></message>
<message><source>Its maker requires you to accept terms. Accept them on the model's page, then enter an access token.</source><translation>Die Urheber geben es nur, wenn ihre Bedingungen angenommen sind. Nehmen Sie sie auf der Seite an, und geben Sie dann ein Zugriffstoken ein.</translation></message>
<message><source>Nothing was installed. The details say why.</source><translation>Es wurde nichts installiert. Die Details nennen den Grund.</translation></message>
<message><source>One of the files is damaged or incomplete. Download it again, or use another model.</source><translation>Eine der Dateien ist beschädigt oder unvollständig. Laden Sie sie neu, oder nehmen Sie ein anderes Modell.</translation></message>
<message><source>Parts of Hearth have different versions. Install Hearth again.</source><translation>Das Fenster und die Modellverwaltung haben verschiedene Versionen. Installieren Sie Hearth neu.</translation></message>
<message><source>Prepare it once to make it faster on this PC.</source><translation>Einmal vorbereitet läuft es hier schneller.</translation></message>
<message><source>The copy of {what} differs from the original.</source><translation>Die Kopie von {what} weicht vom Original ab.</translation></message>
<message><source>The details say why.</source><translation>Die Details nennen den Grund.</translation></message>
<message><source>The disk accepted no more data while {what} was written: {why}.</source><translation>Der Datenträger nahm nichts mehr an, als {what} geschrieben wurde: {why}.</translation></message>
<message><source>The disk is full. Free some space there, or choose a folder on another disk.</source><translation>Der Datenträger ist voll. Schaffen Sie dort Platz, oder wählen Sie einen Ordner auf einem anderen.</translation></message>
<message><source>The disk that holds {what} is full.</source><translation>Der Datenträger mit {what} ist voll.</translation></message>
<message><source>The hub cannot be reached. Connect to the network, or add a model file that is on this PC.</source><translation>Der Hub ist nicht erreichbar. Verbinden Sie sich mit dem Netz, oder importieren Sie ein Modell von diesem PC.</translation></message>
<message><source>The hub did not answer properly. What was downloaded is kept. Try again later.</source><translation>Der Hub antwortet nicht, wie er sollte. Was geladen wurde, bleibt. Versuchen Sie es später erneut.</translation></message>
<message><source>The hub has no model with that name, or it requires an access token. Check the name.</source><translation>Unter diesem Namen hat der Hub nichts, oder er zeigt es nur mit Zugriffstoken. Prüfen Sie den Namen.</translation></message>
<message><source>The list of models was written by a newer Hearth: {what} has the version {found}, and this one knows {known}.</source><translation>Ein neueres Hearth hat die Modellliste geschrieben: {what} hat Version {found}, dieses kennt {known}.</translation></message>
<message><source>The model is of a kind that Hearth does not run.</source><translation>Modelle dieser Art führt Hearth nicht aus.</translation></message>
<message><source>The model manager stopped unexpectedly and is restarting.</source><translation>Die Modellverwaltung wurde unerwartet beendet und startet neu.</translation></message>
<message><source>The models are being moved already.</source><translation>Die Modelle werden schon verschoben.</translation></message>
<message><source>The models folder could not be used. The details say why.</source><translation>Der Modellordner lässt es nicht zu; die Details sagen, warum.</translation></message>
<message><source>The removed model has been deleted for good.</source><translation>Das Entfernte ist endgültig gelöscht.</translation></message>
<message><source>The starter model comes with Hearth and stays.</source><translation>Das Startmodell gehört zu Hearth und bleibt.</translation></message>
<message><source>The tokenizer beside the model's weights belongs to another model.</source><translation>Der Tokenizer neben den Gewichten gehört zu einem anderen Modell.</translation></message>
<message><source>There is a {what} again.</source><translation>{what} ist wieder da.</translation></message>
<message><source>There is a {what} in {folder} again.</source><translation>In {folder} gibt es wieder {what}.</translation></message>
<message><source>There is not enough free memory on the GPU. Close programs that use it.</source><translation>Auf der GPU ist nicht genug Speicher frei. Schließen Sie Programme, die sie verwenden.</translation></message>
<message><source>There is not enough free memory. Close other programs.</source><translation>Es ist nicht genug Speicher frei. Schließen Sie andere Programme.</translation></message>
<message><source>Try again</source><translation>Erneut versuchen</translation></message>
<message><source>{fact} Close other programs.</source><translation>{fact} Schließen Sie andere Programme.</translation></message>
<message><source>{fact} Close programs that use the GPU.</source><translation>{fact} Schließen Sie Programme, die die GPU nutzen.</translation></message>
<message><source>{fact} Free some space there, or choose a folder on another disk.</source><translation>{fact} Schaffen Sie dort Platz, oder wählen Sie einen Ordner auf einem anderen Datenträger.</translation></message>
<message><source>{file} is damaged or incomplete. Download it again, or use another model.</source><translation>{file} ist beschädigt oder unvollständig. Laden Sie die Datei noch einmal herunter, oder verwenden Sie ein anderes Modell.</translation></message>
<message><source>{what} cannot be deleted: {why}.</source><translation>{what} lässt sich nicht löschen: {why}.</translation></message>
<message><source>{what} cannot be made: {why}.</source><translation>{what} lässt sich nicht anlegen: {why}.</translation></message>
<message><source>{what} cannot be put back: {why}.</source><translation>{what} lässt sich nicht zurücklegen: {why}.</translation></message>
<message><source>{what} cannot be read: {why}.</source><translation>{what} lässt sich nicht lesen: {why}.</translation></message>
<message><source>{what} cannot be written: {why}.</source><translation>{what} lässt sich nicht schreiben: {why}.</translation></message>
<message><source>{what} differs from {source}.</source><translation>{what} weicht von {source} ab.</translation></message>
<message><source>{what} exists already.</source><translation>{what} gibt es schon.</translation></message>
<message><source>{what} is being prepared; one model at a time can be.</source><translation>{what} wird gerade vorbereitet; das geht nur mit einem Modell zur Zeit.</translation></message>
<message><source>{what} is in the folder of {model}.</source><translation>{what} liegt im Ordner von {model}.</translation></message>
<message><source>{what} is not a folder.</source><translation>{what} ist kein Ordner.</translation></message>
<message><source>{what} may not be changed: {why}.</source><translation>{what} darf nicht geändert werden: {why}.</translation></message>
<message><source>Checking the file</source><translation>Datei prüfen</translation></message>
<message><source>Convert</source><translation>Umwandeln</translation></message>
<message><source>Converting</source><translation>Umwandeln</translation></message>
<message><source>Estimates for PCs like this: no GPU, {cores}, {free}</source><translation>Schätzungen für PCs wie diesen: keine GPU, {cores}, {free}</translation></message>
<message><source>Estimates for PCs like this: {gpu} with {memory} for models, {free}</source><translation>Schätzungen für PCs wie diesen: {gpu} mit {memory} für Modelle, {free}</translation></message>
<message><source>Estimates for this PC: no GPU, {cores}, {free}</source><translation>Schätzungen für diesen PC: keine GPU, {cores}, {free}</translation></message>
<message><source>Estimates for this PC: {gpu} with {memory} for models, {free}</source><translation>Schätzungen für diesen PC: {gpu} mit {memory} für Modelle, {free}</translation></message>
<message><source>Needs {need}. This PC has {room} for it.</source><translation>Braucht {need}. Dieser PC hat dafür {room}.</translation></message>
<message><source>Needs {size} more and 2 GB to spare; {free} free. Free some space, then resume.</source><translation>Benötigt werden noch {size} und 2 GB Reserve; frei: {free}. Schaffen Sie Platz und setzen Sie dann fort.</translation></message>
<message><source>No estimate</source><translation>Unbekannt</translation></message>
<message><source>Paused</source><translation>Angehalten</translation></message>
<message><source>Placement</source><translation>Platzierung</translation></message>
<message><source>Placing</source><translation>Platzieren</translation></message>
<message><source>Predictors</source><translation>Prädiktoren</translation></message>
<message><source>Profile</source><translation>Profil</translation></message>
<message><source>Profiling</source><translation>Profil erstellen</translation></message>
<message><source>Queued</source><translation>Wartet</translation></message>
<message><source>Speed unknown</source><translation>Tempo unbekannt</translation></message>
<message><source>Training predictors</source><translation>Prädiktoren trainieren</translation></message>
<message><source>Waiting for the network</source><translation>Warten auf das Netz</translation></message>
<message><source>about {time}</source><translation>etwa {time}</translation></message>
<message><source>does not fit</source><translation>passt nicht</translation></message>
<message><source>estimated</source><translation>geschätzt</translation></message>
<message><source>experts on the disk</source><translation>Experten auf dem Datenträger</translation></message>
<message><source>measured here</source><translation>hier gemessen</translation></message>
<message><source>once prepared</source><translation>vorbereitet</translation></message>
<message><source>{done} of {total}</source><translation>{done} von {total}</translation></message>
<message><source>{least} to {most}</source><translation>{least} bis {most}</translation></message>
<message><source>{least} to {most} once prepared</source><translation>{least} bis {most}, vorbereitet</translation></message>
<message><source>{memory} RAM free</source><translation>{memory} RAM frei</translation></message>
<message><source>{memory} in RAM</source><translation>{memory} im RAM</translation></message>
<message><source>{memory} of experts on the disk</source><translation>{memory} an Experten auf dem Datenträger</translation></message>
<message><source>{memory} of its experts are read from the disk when they are chosen.</source><translation>{memory} seiner Experten werden vom Datenträger gelesen, sobald sie gewählt werden.</translation></message>
<message><source>{memory} on the GPU</source><translation>{memory} auf der GPU</translation></message>
<message><source>{time} left</source><translation>noch {time}</translation></message>
<message><source>Broken</source><translation>Defekt</translation></message>
<message><source>CPU only</source><translation>Nur CPU</translation></message>
<message><source>Fits the GPU</source><translation>Passt auf GPU</translation></message>
<message><source>Fits this PC</source><translation>Passt auf diesen PC</translation></message>
<message><source>GPU + CPU</source><translation>GPU + CPU</translation></message>
<message><source>In use</source><translation>In Gebrauch</translation></message>
<message><source>Partly on the disk</source><translation>Teils auf dem Datenträger</translation></message>
<message><source>Preparing</source><translation>Vorbereiten</translation></message>
<message><source>Slow here</source><translation>Hier langsam</translation></message>
<message><source>comes with Hearth</source><translation>kommt mit Hearth</translation></message>
<message><source>{size} too big</source><translation>{size} zu groß</translation></message>
<message><source>15 to 40 GB</source><translation>15 bis 40 GB</translation></message>
<message><source>5 to 15 GB</source><translation>5 bis 15 GB</translation></message>
<message><source>All</source><translation>Alle</translation></message>
<message><source>Chat</source><translation>Chat</translation></message>
<message><source>On this PC</source><translation>Auf diesem PC</translation></message>
<message><source>Recommended</source><translation>Empfohlen</translation></message>
<message><source>Research</source><translation>Forschung</translation></message>
<message><source>Runs well here</source><translation>Läuft hier gut</translation></message>
<message><source>any</source><translation>beliebig</translation></message>
<message><source>name</source><translation>Name</translation></message>
<message><source>over 40 GB</source><translation>über 40 GB</translation></message>
<message><source>recommended</source><translation>empfohlen</translation></message>
<message><source>size</source><translation>Größe</translation></message>
<message><source>speed here</source><translation>Tempo hier</translation></message>
<message><source>up to 5 GB</source><translation>bis 5 GB</translation></message>
<message><source>Load {model}</source><translation>{model} laden</translation></message>
<message><source>the starter model</source><translation>das Startmodell</translation></message>
<message><source>{name} will be loaded after this answer</source><translation>{name} wird nach dieser Antwort geladen</translation></message>
<message><source>{name} will be unloaded after this answer</source><translation>{name} wird nach dieser Antwort entladen</translation></message>
<message><source>{name} added</source><translation>{name} hinzugefügt</translation></message>
<message><source>{name} deleted</source><translation>{name} gelöscht</translation></message>
<message><source>{name} removed</source><translation>{name} entfernt</translation></message>
<message><source>Another model is being prepared: stop that first, or wait</source><translation>Ein anderes Modell wird vorbereitet: Stoppen Sie das zuerst, oder warten Sie</translation></message>
<message><source>{name} is prepared for this PC</source><translation>{name} ist für diesen PC vorbereitet</translation></message>
<message><source>A program</source><translation>Ein Programm</translation></message>
<message><source>Couldn't load {model}, which {client} asked for</source><translation>{model}, nach dem {client} fragt, konnte nicht geladen werden</translation></message>
<message><source>{client} asked for {model}, which is being loaded</source><translation>{client} fragt nach {model}. Es wird geladen</translation></message>
<message><source>{model} was unloaded, because nothing used it for a while</source><translation>{model} wurde entladen, weil es eine Weile nicht benutzt wurde</translation></message>
<message><source>No keyring is available: the key is kept until Hearth is closed</source><translation>Hier ist kein Schlüsselbund nutzbar: Der Schlüssel gilt, bis Hearth geschlossen wird</translation></message>
<message><source>The key is kept until Hearth is closed</source><translation>Der Schlüssel bleibt, bis Hearth geschlossen wird</translation></message>
<message><source>0 always takes the likeliest word; higher is more varied.</source><translation>0 nimmt immer das wahrscheinlichste Wort; höher ist abwechslungsreicher.</translation></message>
<message><source>A program may name any model on this PC, which is then loaded in place of the current one, after a running answer.</source><translation>Ein Programm darf jedes Modell auf diesem PC nennen. Es wird dann anstelle des jetzigen geladen, nach einer laufenden Antwort.</translation></message>
<message><source>Above 1, words that were just used become less likely.</source><translation>Über 1 werden gerade benutzte Wörter unwahrscheinlicher.</translation></message>
<message><source>Advanced</source><translation>Erweitert</translation></message>
<message><source>After this long without messages or requests, the model is unloaded. The next one loads it again. Needs “Load models on request”.</source><translation>Nach so langer Zeit ohne Nachrichten und Anfragen wird das Modell entladen. Die nächste lädt es wieder. Braucht „Modelle auf Anfrage laden“.</translation></message>
<message><source>An answer ends here at the latest.</source><translation>Spätestens hier endet eine Antwort.</translation></message>
<message><source>Answers</source><translation>Antworten</translation></message>
<message><source>Appearance</source><translation>Darstellung</translation></message>
<message><source>Automatic</source><translation>Automatisch</translation></message>
<message><source>CPU threads that work on an answer.</source><translation>CPU-Threads, die an einer Antwort arbeiten.</translation></message>
<message><source>Change it if another program uses this port.</source><translation>Ändern, falls ein anderes Programm diesen Port nutzt.</translation></message>
<message><source>Closing the window then leaves Hearth in the tray; Ctrl Q ends it.</source><translation>Schließen lässt Hearth dann im Infofeld; Strg Q beendet es.</translation></message>
<message><source>Contrast</source><translation>Kontrast</translation></message>
<message><source>Ctrl + and Ctrl - work everywhere.</source><translation>Strg + und Strg - wirken überall.</translation></message>
<message><source>Dark</source><translation>Dunkel</translation></message>
<message><source>Deutsch</source><translation>Deutsch</translation></message>
<message><source>Engine</source><translation>Engine</translation></message>
<message><source>Engine runs in</source><translation>Engine läuft in</translation></message>
<message><source>English</source><translation>English</translation></message>
<message><source>For other programs</source><translation>Für andere Programme</translation></message>
<message><source>Further requests wait. Each one needs memory of its own, so the model is loaded again if you change this.</source><translation>Weitere Anfragen warten. Jede braucht eigenen Speicher. Deshalb wird das Modell neu geladen, wenn Sie dies ändern.</translation></message>
<message><source>GB</source><translation>GB</translation></message>
<message><source>GPU</source><translation>GPU</translation></message>
<message><source>GPU memory</source><translation>GPU-Speicher</translation></message>
<message><source>Hearth saves the work of reading your chats, up to this size. A long chat then continues at once after a restart. At 0, nothing is saved.</source><translation>Hearth speichert die Arbeit, Ihre Chats zu lesen, bis zu dieser Größe. Ein langer Chat geht dann nach einem Neustart sofort weiter. Bei 0 wird nichts gespeichert.</translation></message>
<message><source>High makes text and borders stronger.</source><translation>Hoch zeichnet Text und Ränder kräftiger.</translation></message>
<message><source>How much of a chat the model sees. More takes more memory.</source><translation>Wie viel eines Chats das Modell sieht. Mehr braucht mehr Speicher.</translation></message>
<message><source>How much of it a model may use. Automatic leaves some for other programs.</source><translation>Wie viel davon ein Modell nehmen darf. Automatisch lässt anderen Programmen etwas.</translation></message>
<message><source>How words are chosen, in the preset Balanced</source><translation>Wie Wörter gewählt werden, in der Vorgabe Ausgewogen</translation></message>
<message><source>In its own process, a failure of the engine does not close the window.</source><translation>In einem eigenen Prozess schließt ein Fehler der Engine das Fenster nicht.</translation></message>
<message><source>In the background</source><translation>Im Hintergrund</translation></message>
<message><source>Its own process</source><translation>Eigener Prozess</translation></message>
<message><source>Keep chats ready</source><translation>Chats bereithalten</translation></message>
<message><source>Keep this PC awake</source><translation>Diesen PC wach halten</translation></message>
<message><source>Keeps the probability, alternatives and cost of each token with new answers. “Inspect tokens” in an answer's menu shows them.</source><translation>Bewahrt zu neuen Antworten Wahrscheinlichkeit, Alternativen und Aufwand jedes Tokens auf. „Token untersuchen“ im Menü einer Antwort zeigt sie.</translation></message>
<message><source>Language</source><translation>Sprache</translation></message>
<message><source>Leaves out tokens below this share of the likeliest one; 0 leaves out none.</source><translation>Lässt Token unter diesem Anteil des wahrscheinlichsten weg; 0 lässt keins weg.</translation></message>
<message><source>Lets other programs on this PC use the loaded model through OpenAI's API. Nothing outside this PC can reach it, and every program needs the key.</source><translation>Lässt andere Programme auf diesem PC das geladene Modell über die API von OpenAI fragen. Von außerhalb dieses PCs ist es nicht erreichbar, und jedes Programm braucht den Schlüssel.</translation></message>
<message><source>Light</source><translation>Hell</translation></message>
<message><source>Light, dark, or like the desktop.</source><translation>Hell, dunkel oder wie der Desktop.</translation></message>
<message><source>Load models on request</source><translation>Modelle auf Anfrage laden</translation></message>
<message><source>Longest answer</source><translation>Längste Antwort</translation></message>
<message><source>Longest thought</source><translation>Längster Gedanke</translation></message>
<message><source>Min p</source><translation>Min p</translation></message>
<message><source>Motion</source><translation>Bewegung</translation></message>
<message><source>Never</source><translation>Nie</translation></message>
<message><source>New each time</source><translation>Jedes Mal neu</translation></message>
<message><source>No limit</source><translation>Keine Grenze</translation></message>
<message><source>Notifications</source><translation>Benachrichtigungen</translation></message>
<message><source>Only the k likeliest tokens are considered; 0 considers all.</source><translation>Nur die k wahrscheinlichsten Token kommen in Frage; bei 0 alle.</translation></message>
<message><source>Only the likeliest tokens that together reach this share; 1 considers all.</source><translation>Nur die wahrscheinlichsten Token, die zusammen diesen Anteil erreichen; bei 1 alle.</translation></message>
<message><source>Port</source><translation>Port</translation></message>
<message><source>Record tokens</source><translation>Token aufzeichnen</translation></message>
<message><source>Reduced</source><translation>Reduziert</translation></message>
<message><source>Reduced animates progress only.</source><translation>Reduziert bewegt nur noch den Fortschritt.</translation></message>
<message><source>Repeat penalty</source><translation>Wiederholungsstrafe</translation></message>
<message><source>Requests at once</source><translation>Anfragen gleichzeitig</translation></message>
<message><source>Runs on</source><translation>Läuft auf</translation></message>
<message><source>Seed</source><translation>Startwert</translation></message>
<message><source>Sparse computes the neurons that predictors expect to be active, and needs a model with predictors. Exact skips inactive neurons, with the same result. Dense computes every one.</source><translation>Sparsam berechnet die Neuronen, die die Prädiktoren des Modells erwarten, und braucht ein Modell, das sie mitbringt. Exakt überspringt die, die nicht aktiv sind, mit demselben Ergebnis. Dicht berechnet alle.</translation></message>
<message><source>Stay in the tray</source><translation>Im Infofeld bleiben</translation></message>
<message><source>System</source><translation>System</translation></message>
<message><source>Takes effect after a restart.</source><translation>Gilt nach einem Neustart.</translation></message>
<message><source>Temperature</source><translation>Temperatur</translation></message>
<message><source>Text size</source><translation>Textgröße</translation></message>
<message><source>The model reads them before every chat without a persona. Small models may not follow them.</source><translation>Wird dem Modell vor jedem Chat ohne Persona gesagt. Kleine Modelle halten sich vielleicht nicht daran.</translation></message>
<message><source>The model stops thinking after this many tokens and answers.</source><translation>Nach so vielen Tokens hört das Modell auf nachzudenken und antwortet.</translation></message>
<message><source>The model's own</source><translation>Wie vom Modell vorgegeben</translation></message>
<message><source>The same seed and the same question give the same answer.</source><translation>Gleicher Startwert und gleiche Frage ergeben die gleiche Antwort.</translation></message>
<message><source>The window's process</source><translation>Prozess des Fensters</translation></message>
<message><source>Theme</source><translation>Design</translation></message>
<message><source>Threads</source><translation>Threads</translation></message>
<message><source>Top k</source><translation>Top k</translation></message>
<message><source>Top p</source><translation>Top p</translation></message>
<message><source>Unload after</source><translation>Entladen nach</translation></message>
<message><source>When a long answer ends while Hearth is in the background. They contain no chat text.</source><translation>Wenn eine lange Antwort endet, während Hearth im Hintergrund ist. Sie enthalten keinen Text eines Chats.</translation></message>
<message><source>While it answers, downloads or prepares a model.</source><translation>Während es antwortet, herunterlädt oder ein Modell vorbereitet.</translation></message>
<message><source>With the GPU, busy neurons run there and the others on the CPU at the same time. Automatic uses the GPU if it can.</source><translation>Mit der GPU laufen eifrige Neuronen dort und die übrigen zugleich auf der CPU. Automatisch nimmt sie, wo es geht.</translation></message>
<message><source>min</source><translation>min</translation></message>
<message><source>px</source><translation>px</translation></message>
<message><source>tokens</source><translation>Token</translation></message>
<message><source>{name} has no value.</source><translation>{name} hat keinen Wert.</translation></message>
<message><source>简体中文</source><translation>简体中文</translation></message>
<message><source>About Hearth</source><translation>Über Hearth</translation></message>
<message><source>Add a model file</source><translation>Modelldatei hinzufügen</translation></message>
<message><source>Add a model folder</source><translation>Modellordner hinzufügen</translation></message>
<message><source>Add a server</source><translation>Server hinzufügen</translation></message>
<message><source>Add an MCP server</source><translation>MCP-Server hinzufügen</translation></message>
<message><source>Adjust sampling</source><translation>Sampling anpassen</translation></message>
<message><source>Alt</source><translation>Alt</translation></message>
<message><source>Answer again</source><translation>Neu beantworten</translation></message>
<message><source>Answer again with another model</source><translation>Mit anderem Modell antworten</translation></message>
<message><source>Arrow down</source><translation>Pfeil ab</translation></message>
<message><source>Arrow up</source><translation>Pfeil hoch</translation></message>
<message><source>Attach files</source><translation>Dateien anhängen</translation></message>
<message><source>Bin of deleted chats</source><translation>Papierkorb für gelöschte Chats</translation></message>
<message><source>Blind votes</source><translation>Blinde Abstimmung</translation></message>
<message><source>Chat above</source><translation>Chat darüber</translation></message>
<message><source>Chat below</source><translation>Chat darunter</translation></message>
<message><source>Chats</source><translation>Chats</translation></message>
<message><source>Choose a model</source><translation>Modell wählen</translation></message>
<message><source>Compare models</source><translation>Modelle vergleichen</translation></message>
<message><source>Compare with dense</source><translation>Mit dicht vergleichen</translation></message>
<message><source>Continue the answer</source><translation>Antwort fortsetzen</translation></message>
<message><source>Copy the last answer</source><translation>Letzte Antwort kopieren</translation></message>
<message><source>Copy the selected text</source><translation>Ausgewählten Text kopieren</translation></message>
<message><source>Copy this chat as Markdown</source><translation>Diesen Chat als Markdown kopieren</translation></message>
<message><source>Ctrl</source><translation>Strg</translation></message>
<message><source>Dark theme</source><translation>Dunkles Design</translation></message>
<message><source>Del</source><translation>Entf</translation></message>
<message><source>Delete everything…</source><translation>Alles löschen …</translation></message>
<message><source>Delete the chat</source><translation>Chat löschen</translation></message>
<message><source>Delete this chat</source><translation>Diesen Chat löschen</translation></message>
<message><source>Documents</source><translation>Dokumente</translation></message>
<message><source>Edit personas</source><translation>Personas bearbeiten</translation></message>
<message><source>Edit presets</source><translation>Vorgaben bearbeiten</translation></message>
<message><source>Edit prompts</source><translation>Prompts bearbeiten</translation></message>
<message><source>Edit the last message</source><translation>Letzte Nachricht bearbeiten</translation></message>
<message><source>Enter</source><translation>Enter</translation></message>
<message><source>Export all chats as JSON</source><translation>Alle Chats als JSON exportieren</translation></message>
<message><source>Export all chats as Markdown</source><translation>Alle Chats als Markdown exportieren</translation></message>
<message><source>Export the tokens of the last answer</source><translation>Token der letzten Antwort exportieren</translation></message>
<message><source>Export this chat as JSON</source><translation>Diesen Chat als JSON exportieren</translation></message>
<message><source>Export this chat as Markdown</source><translation>Diesen Chat als Markdown exportieren</translation></message>
<message><source>Export this chat as PDF</source><translation>Diesen Chat als PDF exportieren</translation></message>
<message><source>Export this chat as a web page</source><translation>Diesen Chat als Webseite exportieren</translation></message>
<message><source>Find anything</source><translation>Alles finden</translation></message>
<message><source>Find in this chat</source><translation>In diesem Chat suchen</translation></message>
<message><source>How it runs here</source><translation>Wie es hier läuft</translation></message>
<message><source>Import chats</source><translation>Chats importieren</translation></message>
<message><source>Insert a saved prompt</source><translation>Gespeicherten Prompt einfügen</translation></message>
<message><source>Inspect tokens</source><translation>Token untersuchen</translation></message>
<message><source>Instructions for this chat…</source><translation>Anweisungen für diesen Chat…</translation></message>
<message><source>Keyboard shortcuts</source><translation>Tastenkürzel</translation></message>
<message><source>Larger</source><translation>Größer</translation></message>
<message><source>Light theme</source><translation>Helles Design</translation></message>
<message><source>Live</source><translation>Live</translation></message>
<message><source>Load the last model</source><translation>Letztes Modell laden</translation></message>
<message><source>Models</source><translation>Modelle</translation></message>
<message><source>Move the models folder</source><translation>Modellordner verschieben</translation></message>
<message><source>Move this chat to a folder</source><translation>Diesen Chat in einen Ordner verschieben</translation></message>
<message><source>New chat in this project</source><translation>Neuer Chat in diesem Projekt</translation></message>
<message><source>New line</source><translation>Neue Zeile</translation></message>
<message><source>New project…</source><translation>Neues Projekt…</translation></message>
<message><source>Next match</source><translation>Nächster Treffer</translation></message>
<message><source>Open or close the sidebar</source><translation>Seitenleiste öffnen oder schließen</translation></message>
<message><source>Open the folder of your chats</source><translation>Ordner Ihrer Chats öffnen</translation></message>
<message><source>Page down</source><translation>Bild ab</translation></message>
<message><source>Page up</source><translation>Bild auf</translation></message>
<message><source>Pages</source><translation>Seiten</translation></message>
<message><source>Pin or unpin this chat</source><translation>Diesen Chat anheften oder lösen</translation></message>
<message><source>Preset, persona, neurons</source><translation>Vorgabe, Persona, Neuronen</translation></message>
<message><source>Previous match</source><translation>Vorheriger Treffer</translation></message>
<message><source>Print this chat</source><translation>Diesen Chat drucken</translation></message>
<message><source>Privacy</source><translation>Datenschutz</translation></message>
<message><source>Project settings…</source><translation>Projekteinstellungen…</translation></message>
<message><source>Quit Hearth</source><translation>Hearth beenden</translation></message>
<message><source>Record tokens in this chat, or stop</source><translation>Token dieses Chats aufzeichnen oder damit aufhören</translation></message>
<message><source>Refresh the models</source><translation>Modelle neu einlesen</translation></message>
<message><source>Rename the chat or folder</source><translation>Chat oder Ordner umbenennen</translation></message>
<message><source>Rename this chat</source><translation>Diesen Chat umbenennen</translation></message>
<message><source>Search all chats</source><translation>Alle Chats durchsuchen</translation></message>
<message><source>Select the message, then the chat</source><translation>Nachricht auswählen, dann den Chat</translation></message>
<message><source>Send</source><translation>Senden</translation></message>
<message><source>Settings</source><translation>Einstellungen</translation></message>
<message><source>Shift</source><translation>Umschalt</translation></message>
<message><source>Show more of a folded text</source><translation>Mehr von eingeklapptem Text zeigen</translation></message>
<message><source>Show the log</source><translation>Protokoll anzeigen</translation></message>
<message><source>Smaller</source><translation>Kleiner</translation></message>
<message><source>Stop loading the model</source><translation>Laden des Modells stoppen</translation></message>
<message><source>Stop the answer</source><translation>Antwort stoppen</translation></message>
<message><source>System prompt and persona</source><translation>Systemprompt und Persona</translation></message>
<message><source>Test this PC</source><translation>Diesen PC testen</translation></message>
<message><source>Theme of the desktop</source><translation>Design des Desktops</translation></message>
<message><source>Thinking level</source><translation>Wie viel nachgedacht wird</translation></message>
<message><source>Unload the model</source><translation>Modell entladen</translation></message>
<message><source>Updates</source><translation>Updates</translation></message>
<message><source>Usual size</source><translation>Normale Größe</translation></message>
<message><source>Versions side by side</source><translation>Fassungen nebeneinander</translation></message>
<message><source>Window</source><translation>Fenster</translation></message>
<message><source>add new instructions import export</source><translation>hinzufügen neu anweisungen importieren exportieren</translation></message>
<message><source>add new sampling temperature import export</source><translation>hinzufügen neu sampling temperatur importieren exportieren</translation></message>
<message><source>api openai other programs port key</source><translation>api openai andere programme port schlüssel</translation></message>
<message><source>appearance colours bright</source><translation>darstellung aussehen farben hell</translation></message>
<message><source>appearance colours night</source><translation>darstellung aussehen farben nacht dunkel</translation></message>
<message><source>appearance colours system</source><translation>darstellung aussehen farben system</translation></message>
<message><source>begin start conversation</source><translation>beginnen anfangen starten gespräch</translation></message>
<message><source>bring back</source><translation>zurückholen</translation></message>
<message><source>cancel load</source><translation>abbrechen laden</translation></message>
<message><source>clipboard</source><translation>zwischenablage</translation></message>
<message><source>command palette</source><translation>befehle palette</translation></message>
<message><source>disk storage path where</source><translation>festplatte speicherort pfad wo</translation></message>
<message><source>download catalogue</source><translation>herunterladen katalog download</translation></message>
<message><source>erase reset remove stored data privacy</source><translation>löschen zurücksetzen entfernen gespeichert daten privatsphäre</translation></message>
<message><source>exit close</source><translation>verlassen schließen</translation></message>
<message><source>file sort</source><translation>ablegen ordnen sortieren</translation></message>
<message><source>find again search</source><translation>weitersuchen finden suche</translation></message>
<message><source>find search</source><translation>finden suche zurück</translation></message>
<message><source>find text messages</source><translation>suchen text nachrichten</translation></message>
<message><source>folder begin start conversation</source><translation>Ordner beginnen starten Unterhaltung</translation></message>
<message><source>folder create</source><translation>Ordner anlegen erstellen</translation></message>
<message><source>folder instructions notes tools</source><translation>Ordner Anweisungen Notizen Werkzeuge</translation></message>
<message><source>free memory stop</source><translation>speicher freigeben stoppen</translation></message>
<message><source>full drop oldest window tokens</source><translation>voll älteste weglassen fenster token</translation></message>
<message><source>gguf import open own</source><translation>gguf importieren öffnen eigene</translation></message>
<message><source>go on write more</source><translation>weiter schreiben mehr</translation></message>
<message><source>graphs gpu neurons monitor</source><translation>graphen gpu neuronen monitor</translation></message>
<message><source>help bug problem</source><translation>hilfe fehler problem</translation></message>
<message><source>help bug problem folder</source><translation>hilfe fehler problem ordner</translation></message>
<message><source>help keys</source><translation>hilfe tasten</translation></message>
<message><source>help self report diagnostics benchmark</source><translation>hilfe selbsttest bericht diagnose messung</translation></message>
<message><source>hub hugging face login key add</source><translation>hub hugging face anmelden schlüssel hinzufügen</translation></message>
<message><source>import open own safetensors bundle</source><translation>importieren öffnen eigene safetensors bundle</translation></message>
<message><source>in a very long message</source><translation>in einer sehr langen Nachricht</translation></message>
<message><source>in an empty message</source><translation>in einer leeren Nachricht</translation></message>
<message><source>in the list of chats</source><translation>in der Liste der Chats</translation></message>
<message><source>in the message</source><translation>in der Nachricht</translation></message>
<message><source>in the messages</source><translation>in den Nachrichten</translation></message>
<message><source>instructions role</source><translation>anweisungen rolle</translation></message>
<message><source>keep on top</source><translation>oben behalten</translation></message>
<message><source>look again reload list</source><translation>erneut suchen neu laden liste</translation></message>
<message><source>model gpu memory placement layers</source><translation>modell gpu speicher verteilung schichten</translation></message>
<message><source>my folders files pdf search sources knowledge</source><translation>meine ordner dateien pdf suche quellen wissen</translation></message>
<message><source>newer version install upgrade back</source><translation>neue version installieren aktualisieren zurück</translation></message>
<message><source>next</source><translation>nächster</translation></message>
<message><source>open file json zip restore chatgpt claude lm studio jan open webui gpt4all</source><translation>öffnen datei json zip wiederherstellen chatgpt claude lm studio jan open webui gpt4all</translation></message>
<message><source>openai api remote ollama lm studio llama.cpp</source><translation>openai api entfernt ollama lm studio llama.cpp</translation></message>
<message><source>paper printer preview page</source><translation>Papier Drucker Vorschau Seite</translation></message>
<message><source>pdf document text open</source><translation>pdf dokument text öffnen</translation></message>
<message><source>preferences options</source><translation>optionen vorlieben</translation></message>
<message><source>previous</source><translation>voriger</translation></message>
<message><source>probability alternatives prompt ids neurons</source><translation>wahrscheinlichkeit alternativen prompt ids neuronen</translation></message>
<message><source>reasoning effort off</source><translation>nachdenken denken aufwand aus</translation></message>
<message><source>regenerate retry last</source><translation>neu erzeugen wiederholen letzte</translation></message>
<message><source>regenerate switch compare</source><translation>neu erzeugen wechseln vergleichen</translation></message>
<message><source>remove</source><translation>entfernen</translation></message>
<message><source>restore undelete trash recycle empty</source><translation>wiederherstellen gelöscht papierkorb leeren</translation></message>
<message><source>sampling mode sparse exact</source><translation>sampling modus sparsam exakt</translation></message>
<message><source>save file</source><translation>datei speichern</translation></message>
<message><source>save file backup</source><translation>datei speichern sicherung backup</translation></message>
<message><source>save file html browser</source><translation>Datei speichern HTML Browser</translation></message>
<message><source>save file print</source><translation>Datei speichern drucken</translation></message>
<message><source>save folder files</source><translation>ordner speichern dateien</translation></message>
<message><source>search text messages words</source><translation>suchen text nachrichten wörter</translation></message>
<message><source>slash add new template import export</source><translation>Schrägstrich hinzufügen neu Vorlage importieren exportieren</translation></message>
<message><source>slash template snippet library variables</source><translation>Schrägstrich Vorlage Textbaustein Bibliothek Variablen</translation></message>
<message><source>speed neurons sparse exact</source><translation>tempo neuronen sparsam exakt</translation></message>
<message><source>switch load</source><translation>wechseln laden</translation></message>
<message><source>system prompt without persona</source><translation>System-Prompt ohne Persona</translation></message>
<message><source>temperature top p seed stop</source><translation>temperatur top p startwert stopp</translation></message>
<message><source>title</source><translation>titel</translation></message>
<message><source>tools program call model context protocol</source><translation>Werkzeuge Programm Aufruf model context protocol</translation></message>
<message><source>version licence</source><translation>version lizenz</translation></message>
<message><source>what leaves this pc network stored</source><translation>was verlässt diesen pc netzwerk gespeichert</translation></message>
<message><source>where stored data backup</source><translation>wo gespeichert daten sicherung</translation></message>
<message><source>while it is written</source><translation>während geschrieben wird</translation></message>
<message><source>zoom in text size</source><translation>vergrößern zoom textgröße</translation></message>
<message><source>zoom out text size</source><translation>verkleinern zoom textgröße</translation></message>
<message><source>zoom reset text size</source><translation>zurücksetzen zoom textgröße</translation></message>
<message><source>All chats with their attachments and drafts, the bin, the notes of projects in Hearth's folder, and the chats kept ready to continue</source><translation>Alle Chats mit Anhängen und Entwürfen, der Papierkorb, die Notizen der Projekte im Ordner von Hearth und die zum Fortsetzen bereitgehaltenen Chats</translation></message>
<message><source>Compiled code for this PC</source><translation>Übersetzter Code für diesen PC</translation></message>
<message><source>Downloaded and copied models. Models used in place, such as those of LM Studio or Ollama, stay</source><translation>Geladene und kopierte Modelle. An ihrem Ort genutzte, etwa von LM Studio oder Ollama, bleiben</translation></message>
<message><source>Hearth makes it again at the next start, in about a minute</source><translation>Der nächste Start erzeugt ihn neu, in etwa einer Minute</translation></message>
<message><source>Index of documents</source><translation>Index der Dokumente</translation></message>
<message><source>It could not be deleted at first.</source><translation>Es ließ sich zuerst nicht löschen.</translation></message>
<message><source>Logs and crash notes</source><translation>Protokolle und Absturznotizen</translation></message>
<message><source>Only the link to it was deleted.</source><translation>Nur die Verknüpfung dorthin wurde gelöscht.</translation></message>
<message><source>Parts of models that are still being downloaded, and updates of Hearth</source><translation>Teile von Modellen, die noch heruntergeladen werden, und Updates von Hearth</translation></message>
<message><source>Prepared data</source><translation>Vorbereitete Daten</translation></message>
<message><source>Servers and keys</source><translation>Server und Schlüssel</translation></message>
<message><source>Settings, personas, presets, saved prompts, settings of projects and choices for models</source><translation>Einstellungen, Personas, Voreinstellungen, gespeicherte Prompts, Einstellungen von Projekten und Entscheidungen für Modelle</translation></message>
<message><source>The list of your folders of documents, and the text of their files, to be searched. The documents themselves stay</source><translation>Die Liste Ihrer Dokumentordner und der Text ihrer Dateien für die Suche. Die Dokumente selbst bleiben</translation></message>
<message><source>The servers that you added; keys and the access token, also in this system's keyring</source><translation>Ihre Server; Schlüssel und Zugangstoken, auch im Schlüsselbund des Systems</translation></message>
<message><source>Unfinished downloads</source><translation>Unfertige Downloads</translation></message>
<message><source>What Hearth did. They hold no text of a chat</source><translation>Was Hearth getan hat. Sie enthalten keinen Text aus Chats</translation></message>
<message><source>What preparing made for this PC, and measured speeds</source><translation>Was das Vorbereiten für diesen PC erzeugt hat, und gemessene Raten</translation></message>
<message><source>Calculator</source><translation>Rechner</translation></message>
<message><source>That MCP server was removed or switched off.</source><translation>Dieser MCP-Server wurde entfernt oder ausgeschaltet.</translation></message>
<message><source>The call was cancelled.</source><translation>Der Aufruf wurde abgebrochen.</translation></message>
<message><source>The tool {name} is not available.</source><translation>Das Werkzeug {name} ist nicht verfügbar.</translation></message>
<message><source>{server} changed the tool {tool} since you approved it. Look at its tools and approve it again.</source><translation>{server} hat das Werkzeug {tool} geändert, seit Sie es genehmigt haben. Sehen Sie sich die Werkzeuge an und genehmigen Sie es erneut.</translation></message>
<message><source>{server} no longer offers the tool {tool}.</source><translation>{server} bietet das Werkzeug {tool} nicht mehr an.</translation></message>
<message><source>{tool} of {server}</source><translation>{tool} von {server}</translation></message>
<message><source>Its last lines:</source><translation>Seine letzten Zeilen:</translation></message>
<message><source>no reason was given</source><translation>es wurde kein Grund genannt</translation></message>
<message><source>{name} answered with HTTP status {status}.</source><translation>{name} hat mit dem HTTP-Status {status} geantwortet.</translation></message>
<message><source>{name} answered with HTTP status {status}: it requires a key. Enter it as a header of the server.</source><translation>{name} hat mit dem HTTP-Status {status} geantwortet: Es verlangt einen Schlüssel. Tragen Sie ihn als Kopfzeile des Servers ein.</translation></message>
<message><source>{name} answered with an error: {why}</source><translation>{name} hat mit einem Fehler geantwortet: {why}</translation></message>
<message><source>{name} closed its output and was stopped.</source><translation>{name} hat seine Ausgabe geschlossen und wurde beendet.</translation></message>
<message><source>{name} could not be reached at {host}: {why}.</source><translation>{name} ist unter {host} nicht erreichbar: {why}.</translation></message>
<message><source>{name} could not be started: {why}.</source><translation>{name} konnte nicht gestartet werden: {why}.</translation></message>
<message><source>{name} defines too many tools, or too long ones: more than {n} or {chars} characters.</source><translation>{name} definiert zu viele oder zu lange Werkzeuge: mehr als {n} oder {chars} Zeichen.</translation></message>
<message><source>{name} did not answer within {n} s.</source><translation>{name} hat innerhalb von {n} s nicht geantwortet.</translation></message>
<message><source>{name} ended with code {code}.</source><translation>{name} hat sich mit dem Code {code} beendet.</translation></message>
<message><source>{name} sent a message without end and was stopped.</source><translation>{name} hat eine Nachricht ohne Ende gesendet und wurde beendet.</translation></message>
<message><source>{name} violated the protocol: {why}</source><translation>{name} hat das Protokoll verletzt: {why}</translation></message>
<message><source>{name} was stopped.</source><translation>{name} wurde beendet.</translation></message>
<message><source>The command {command} of {name} was not found. Install it, or enter its full path.</source><translation>Der Befehl {command} von {name} wurde nicht gefunden. Installieren Sie ihn, oder geben Sie seinen vollständigen Pfad an.</translation></message>
<message><source>An address must not contain a name or password. Enter a header instead.</source><translation>Eine Adresse darf keinen Namen und kein Passwort enthalten. Geben Sie stattdessen eine Kopfzeile an.</translation></message>
<message><source>Couldn't read {name}: {why}.</source><translation>{name} konnte nicht gelesen werden: {why}.</translation></message>
<message><source>Hearth keeps at most {n} MCP servers. Remove one first.</source><translation>Hearth merkt sich höchstens {n} MCP-Server. Entfernen Sie zuerst einen.</translation></message>
<message><source>MCP server</source><translation>MCP-Server</translation></message>
<message><source>That is not the address of an MCP server. Write it like https://example.org/mcp.</source><translation>Das ist keine Adresse eines MCP-Servers. Schreiben Sie sie wie https://example.org/mcp.</translation></message>
<message><source>The entry is damaged.</source><translation>Der Eintrag ist beschädigt.</translation></message>
<message><source>The entry of {name} is too long or damaged.</source><translation>Der Eintrag von {name} ist zu lang oder beschädigt.</translation></message>
<message><source>{folder} contains Hearth's own files or all of yours. Choose a folder inside it.</source><translation>{folder} enthält Hearths eigene Dateien oder alle Ihre. Wählen Sie einen Ordner darin.</translation></message>
<message><source>{folder} is not the full path of a folder.</source><translation>{folder} ist kein vollständiger Pfad eines Ordners.</translation></message>
<message><source>{host} is not in this PC's own network, and http is not encrypted. Use https.</source><translation>{host} ist nicht im eigenen Netz dieses PCs, und http ist nicht verschlüsselt. Verwenden Sie https.</translation></message>
<message><source>{name} has a header that HTTP does not allow.</source><translation>{name} hat eine Kopfzeile, die HTTP nicht erlaubt.</translation></message>
<message><source>{name} has a variable whose name is not made of letters, digits and _.</source><translation>{name} hat eine Variable, deren Name nicht aus Buchstaben, Ziffern und _ besteht.</translation></message>
<message><source>{name} has neither a command nor an address.</source><translation>{name} hat weder einen Befehl noch eine Adresse.</translation></message>
<message><source>{name} has no command.</source><translation>{name} hat keinen Befehl.</translation></message>
<message><source>{name} is not an MCP server that Hearth can use.</source><translation>{name} ist kein MCP-Server, den Hearth verwenden kann.</translation></message>
<message><source>{name} lists no MCP servers.</source><translation>{name} führt keine MCP-Server auf.</translation></message>
<message><source>{name} uses the old SSE transport, which Hearth does not support.</source><translation>{name} verwendet den alten SSE-Transport, den Hearth nicht unterstützt.</translation></message>
<message><source>This server</source><translation>Dieser Server</translation></message>
<message><source>Propose a note</source><translation>Notiz vorschlagen</translation></message>
<message><source>At least {least}.</source><translation>Mindestens {least}.</translation></message>
<message><source>At most {most}.</source><translation>Höchstens {most}.</translation></message>
<message><source>Enter a number.</source><translation>Geben Sie eine Zahl ein.</translation></message>
<message><source>Enter a whole number.</source><translation>Geben Sie eine ganze Zahl ein.</translation></message>
<message><source>Fill this in.</source><translation>Füllen Sie dies aus.</translation></message>
<message><source>Write it as {example}.</source><translation>Schreiben Sie es wie {example}.</translation></message>
<message><source>Read web pages</source><translation>Webseiten lesen</translation></message>
<message><source>this address</source><translation>diese Adresse</translation></message>
<message><source>Web search</source><translation>Websuche</translation></message>
<message><source>Back to the chat</source><translation>Zurück zum Chat</translation></message>
<message><source>Comes next</source><translation>Kommt als Nächstes</translation></message>
<message><source>Continue with this one</source><translation>Mit dieser fortfahren</translation></message>
<message><source>Copy answer</source><translation>Antwort kopieren</translation></message>
<message><source>The chat continues with this one</source><translation>Der Chat geht mit dieser weiter</translation></message>
<message numerus="yes"><source>{n} answers to this question</source><translation><numerusform>{n} Antwort auf diese Frage</numerusform><numerusform>{n} Antworten auf diese Frage</numerusform></translation></message>
<message><source>Personas</source><translation>Personas</translation></message>
<message><source>Presets</source><translation>Vorgaben</translation></message>
<message><source>Prompts</source><translation>Prompts</translation></message>
<message><source>Results of a comparison (*.jsonl)</source><translation>Ergebnisse eines Vergleichs (*.jsonl)</translation></message>
<message><source>the model decides</source><translation>das Modell entscheidet</translation></message>
<message><source>{built_in} built in</source><translation>{built_in} mitgeliefert</translation></message>
<message><source>{name}, changed</source><translation>{name}, geändert</translation></message>
<message><source>{own} of yours, {built_in} built in</source><translation>{own} eigene, {built_in} mitgeliefert</translation></message>
<message><source>Couldn't attach that</source><translation>Das wurde nicht angehängt</translation></message>
<message><source>A server gave this answer. Hearth records tokens only of answers from this PC.</source><translation>Diese Antwort kam von einem Server. Hearth zeichnet nur Token von Antworten dieses PCs auf.</translation></message>
<message><source>Couldn't write {name}: {why}</source><translation>{name} konnte nicht geschrieben werden: {why}</translation></message>
<message><source>Export the tokens</source><translation>Token exportieren</translation></message>
<message><source>JSON lines (*.jsonl)</source><translation>JSON-Zeilen (*.jsonl)</translation></message>
<message><source>No tokens recorded</source><translation>Keine Token aufgezeichnet</translation></message>
<message><source>Recording is on in this chat. Answer again to inspect the tokens.</source><translation>Die Aufzeichnung ist in diesem Chat an. Lassen Sie noch einmal antworten, um die Token zu untersuchen.</translation></message>
<message><source>The tokens of the last answer were not recorded</source><translation>Die Token der letzten Antwort wurden nicht aufgezeichnet</translation></message>
<message><source>To continue from one of them, load the model and wait until no answer is being written.</source><translation>Um von einer davon aus fortzusetzen, laden Sie das Modell und warten Sie, bis keine Antwort mehr geschrieben wird.</translation></message>
<message><source>To continue from one of them, load {model}, which wrote this answer.</source><translation>Um von einer davon aus fortzusetzen, laden Sie {model}: Von diesem Modell stammt die Antwort.</translation></message>
<message><source>Tokens exported to {name}</source><translation>Token nach {name} exportiert</translation></message>
<message><source>Turn on recording for this chat, then answer again.</source><translation>Schalten Sie die Aufzeichnung für diesen Chat ein und lassen Sie noch einmal antworten.</translation></message>
<message><source>Answer copied</source><translation>Antwort kopiert</translation></message>
<message><source>Chat copied as Markdown</source><translation>Chat als Markdown kopiert</translation></message>
<message><source>Chat menu</source><translation>Chat-Menü</translation></message>
<message><source>Copy chat as Markdown</source><translation>Chat als Markdown kopieren</translation></message>
<message><source>Delete</source><translation>Löschen</translation></message>
<message><source>Open</source><translation>Öffnen</translation></message>
<message><source>Open this link in your browser?</source><translation>Diesen Link im Browser öffnen?</translation></message>
<message><source>Rename</source><translation>Umbenennen</translation></message>
<message><source>Stay</source><translation>Bleiben</translation></message>
<message><source>Add</source><translation>Hinzufügen</translation></message>
<message><source>Cancel</source><translation>Abbrechen</translation></message>
<message><source>Compare</source><translation>Vergleichen</translation></message>
<message><source>Each model answers the same question, one after another. All answers stay in this chat as versions.</source><translation>Jedes Modell beantwortet dieselbe Frage, eines nach dem anderen. Alle Antworten bleiben als Fassungen in diesem Chat.</translation></message>
<message><source>Remove</source><translation>Entfernen</translation></message>
<message><source>The whole chat is sent to {server}, not on this PC.</source><translation>Der ganze Chat wird an {server} gesendet, nicht auf diesem PC.</translation></message>
<message><source>Two rows are the same. Choose another model or mode for one of them.</source><translation>Zwei Zeilen sind gleich. Wählen Sie für eine davon ein anderes Modell oder einen anderen Modus.</translation></message>
<message><source>No models on this PC yet.</source><translation>Auf diesem PC liegt noch kein Modell.</translation></message>
<message><source>Write a message first</source><translation>Schreiben Sie zuerst eine Nachricht</translation></message>
<message><source>A question</source><translation>Eine Frage</translation></message>
<message><source>A small sum</source><translation>Eine kleine Rechnung</translation></message>
<message><source>A story</source><translation>Eine Geschichte</translation></message>
<message><source>Nothing leaves this computer unless you allow a tool to send it.</source><translation>Nichts verlässt diesen Computer, außer Sie erlauben einem Werkzeug, es zu senden.</translation></message>
<message><source>Nothing you type leaves this computer.</source><translation>Nichts, was Sie schreiben, verlässt diesen PC.</translation></message>
<message><source>Ready when you are</source><translation>Bereit, wenn Sie es sind</translation></message>
<message><source>Tell me a story about a small fox</source><translation>Tell me a story about a small fox</translation></message>
<message><source>This is a base model: it continues text rather than answering.</source><translation>Dies ist ein Basismodell: Es führt Text fort, statt zu antworten.</translation></message>
<message><source>Tom has 5 apples and gives away 2. How many are left?</source><translation>Tom has 5 apples and gives away 2. How many are left?</translation></message>
<message><source>What is the capital of Peru?</source><translation>What is the capital of Peru?</translation></message>
<message><source>What you write in this chat is sent to {server} on this PC.</source><translation>Was Sie in diesem Chat schreiben, geht an {server} auf diesem PC.</translation></message>
<message><source>What you write in this chat is sent to {server}.</source><translation>Was Sie in diesem Chat schreiben, geht an {server}.</translation></message>
<message><source>Your next message loads {model}.</source><translation>Ihre nächste Nachricht lädt {model}.</translation></message>
<message><source>{model} in {server}, another program on this PC.</source><translation>{model} in {server}, einem anderen Programm auf diesem PC.</translation></message>
<message><source>{model} is {what} It works offline.</source><translation>{model}: {what} Funktioniert offline.</translation></message>
<message><source>{model} on {server}, not on this PC.</source><translation>{model} auf {server}, nicht auf diesem PC.</translation></message>
<message><source>Close  (Esc)</source><translation>Schließen  (Esc)</translation></message>
<message><source>No matches</source><translation>Keine Treffer</translation></message>
<message><source>Opening</source><translation>Wird geöffnet</translation></message>
<message><source>Searching, {percent}%</source><translation>Suche, {percent}%</translation></message>
<message numerus="yes"><source>{n} matches</source><translation><numerusform>{n} Treffer</numerusform><numerusform>{n} Treffer</numerusform></translation></message>
<message><source>{n} of {total}</source><translation>{n} von {total}</translation></message>
<message><source>Cancel the download</source><translation>Download abbrechen</translation></message>
<message><source>Couldn't download {name}</source><translation>{name} wurde nicht heruntergeladen</translation></message>
<message><source>Download</source><translation>Herunterladen</translation></message>
<message><source>Downloading {names}</source><translation>Herunterladen: {names}</translation></message>
<message><source>Load</source><translation>Laden</translation></message>
<message><source>Load it, and the next answer comes from it.</source><translation>Laden Sie es, und die nächste Antwort kommt von ihm.</translation></message>
<message><source>Not now</source><translation>Nicht jetzt</translation></message>
<message><source>Pause the download</source><translation>Download anhalten</translation></message>
<message><source>Resume</source><translation>Fortsetzen</translation></message>
<message><source>You can keep chatting meanwhile.</source><translation>Sie können währenddessen weiter chatten.</translation></message>
<message><source>about {rate}</source><translation>etwa {rate}</translation></message>
<message><source>better answers</source><translation>bessere Antworten</translation></message>
<message><source>{model} is only a demonstration. {name} answers this better</source><translation>{model} dient nur zur Vorführung. {name} antwortet hier besser</translation></message>
<message><source>{name} is being prepared for this PC</source><translation>{name} wird für diesen PC vorbereitet</translation></message>
<message><source>{name} is on this PC</source><translation>{name} ist auf diesem PC</translation></message>
<message><source>{name} is paused</source><translation>{name} ist angehalten</translation></message>
<message><source>{name} runs well on this PC</source><translation>{name} läuft gut auf diesem PC</translation></message>
<message><source>{size} to download</source><translation>{size} herunterzuladen</translation></message>
<message><source>Export personas</source><translation>Personas exportieren</translation></message>
<message><source>Export presets</source><translation>Vorgaben exportieren</translation></message>
<message><source>Export prompts</source><translation>Prompts exportieren</translation></message>
<message><source>Export your personas to a file</source><translation>Eigene Personas in eine Datei schreiben</translation></message>
<message><source>Export your presets to a file</source><translation>Eigene Vorgaben in eine Datei schreiben</translation></message>
<message><source>Export your prompts to a file</source><translation>Ihre Prompts in eine Datei exportieren</translation></message>
<message><source>Import personas</source><translation>Personas importieren</translation></message>
<message><source>Import personas from a file</source><translation>Personas aus einer Datei übernehmen</translation></message>
<message><source>Import presets</source><translation>Vorgaben importieren</translation></message>
<message><source>Import presets from a file</source><translation>Vorgaben aus einer Datei übernehmen</translation></message>
<message><source>Import prompts</source><translation>Prompts importieren</translation></message>
<message><source>Import prompts from a file</source><translation>Prompts aus einer Datei importieren</translation></message>
<message><source>Name of the persona</source><translation>Name der Persona</translation></message>
<message><source>Name of the preset</source><translation>Name der Vorgabe</translation></message>
<message><source>Name of the prompt</source><translation>Name des Prompts</translation></message>
<message><source>New persona</source><translation>Neue Persona</translation></message>
<message><source>New preset</source><translation>Neue Vorgabe</translation></message>
<message><source>New prompt</source><translation>Neuer Prompt</translation></message>
<message><source>Small models may not follow long instructions.</source><translation>Kleine Modelle halten sich vielleicht nicht an lange Anweisungen.</translation></message>
<message><source>The text that is put into the message</source><translation>Der Text, der in die Nachricht eingefügt wird</translation></message>
<message><source>To fill in: {names}. Tab goes to the next one.</source><translation>Auszufüllen: {names}. Tab führt zum nächsten.</translation></message>
<message><source>What the model reads before the chat begins, in your words</source><translation>Was dem Modell vor dem Chat gesagt wird, in Ihren Worten</translation></message>
<message><source>Write a word in braces, such as {example}, where something is to be filled in.</source><translation>Schreiben Sie ein Wort in geschweiften Klammern, etwa {example}, wo etwas auszufüllen ist.</translation></message>
<message numerus="yes"><source>{n} characters. They take up context in every chat with this persona.</source><translation><numerusform>{n} Zeichen. Es belegt Kontext in jedem Chat mit dieser Persona.</numerusform><numerusform>{n} Zeichen. Sie belegen Kontext in jedem Chat mit dieser Persona.</numerusform></translation></message>
<message><source>Close</source><translation>Schließen</translation></message>
<message><source>Duplicate</source><translation>Duplizieren</translation></message>
<message><source>Export</source><translation>Exportieren</translation></message>
<message><source>Hearth's</source><translation>von Hearth</translation></message>
<message><source>Import</source><translation>Importieren</translation></message>
<message><source>It comes with Hearth and stays as it is. Duplicate it to make it yours.</source><translation>Es kommt mit Hearth und bleibt, wie es ist. Duplizieren Sie es, um es zu Ihrem zu machen.</translation></message>
<message><source>They are all here</source><translation>Sie sind alle schon hier</translation></message>
<message><source>{added}, {left_out} left out as invalid</source><translation>{added}, {left_out} weggelassen: Sie ergeben hier keinen Sinn</translation></message>
<message numerus="yes"><source>{n} added</source><translation><numerusform>{n} hinzugefügt</numerusform><numerusform>{n} hinzugefügt</numerusform></translation></message>
<message numerus="yes"><source>{n} written to {name}</source><translation><numerusform>{n} nach {name} geschrieben</numerusform><numerusform>{n} nach {name} geschrieben</numerusform></translation></message>
<message><source>A prompt is put into the message, and a file is attached. You see both before you send them.</source><translation>Ein Prompt kommt in die Nachricht, eine Datei wird angehängt. Sie sehen beides, bevor Sie es senden.</translation></message>
<message><source>Asking the server what it offers</source><translation>Der Server wird gefragt, was er anbietet</translation></message>
<message><source>Files</source><translation>Dateien</translation></message>
<message><source>Insert</source><translation>Einfügen</translation></message>
<message><source>Prompts and files of this server</source><translation>Prompts und Dateien dieses Servers</translation></message>
<message><source>This server offers no prompts and no files.</source><translation>Dieser Server bietet keine Prompts und keine Dateien an.</translation></message>
<message><source>Waiting for {server}</source><translation>Warten auf {server}</translation></message>
<message><source>What you enter goes to the server {server}.</source><translation>Was Sie eingeben, geht an den Server {server}.</translation></message>
<message><source>Choose a file of results that the command hearth-engine compare has written.</source><translation>Wählen Sie eine Datei mit Ergebnissen, die der Befehl hearth-engine compare geschrieben hat.</translation></message>
<message><source>Couldn't open {name}</source><translation>{name} konnte nicht geöffnet werden</translation></message>
<message><source>Equally good</source><translation>Gleich gut</translation></message>
<message><source>Left answer</source><translation>Linke Antwort</translation></message>
<message><source>Losses</source><translation>Verloren</translation></message>
<message><source>Model and mode</source><translation>Modell und Modus</translation></message>
<message><source>Neither</source><translation>Keine</translation></message>
<message><source>Pair {n} of {count}. The models appear after the last pair.</source><translation>Paar {n} von {count}. Die Modelle erscheinen nach dem letzten Paar.</translation></message>
<message><source>Previous pair</source><translation>Voriges Paar</translation></message>
<message><source>Right answer</source><translation>Rechte Antwort</translation></message>
<message><source>The file has no two different answers to the same prompt, so there is nothing to vote on.</source><translation>Die Datei enthält keine zwei verschiedenen Antworten auf dieselbe Eingabe, also gibt es nichts abzustimmen.</translation></message>
<message><source>The vote was not stored. {why} Try again.</source><translation>Die Stimme wurde nicht gespeichert. {why} Versuchen Sie es noch einmal.</translation></message>
<message><source>Which answer is better?</source><translation>Welche Antwort ist besser?</translation></message>
<message><source>Win rate</source><translation>Siegquote</translation></message>
<message><source>Wins</source><translation>Gewonnen</translation></message>
<message><source>{n} of {count} pairs have a vote.</source><translation>{n} von {count} Paaren haben eine Stimme.</translation></message>
<message><source>Add to documents</source><translation>Zu den Dokumenten hinzufügen</translation></message>
<message numerus="yes"><source>Answer from {n} folders?</source><translation><numerusform>Aus {n} Ordner antworten?</numerusform><numerusform>Aus {n} Ordnern antworten?</numerusform></translation></message>
<message><source>Answer from “{name}”?</source><translation>Aus „{name}“ antworten?</translation></message>
<message><source>Choose a folder with documents</source><translation>Ordner mit Dokumenten wählen</translation></message>
<message><source>Get an embedding model…</source><translation>Ein Embedding-Modell holen …</translation></message>
<message><source>Search by meaning</source><translation>Nach dem Sinn suchen</translation></message>
<message><source>The documents stay where they are, and nothing leaves this PC. The model reads passages that fit a question of this chat.</source><translation>Die Dokumente bleiben, wo sie sind, und nichts verlässt diesen PC. Das Modell liest Stellen, die zu einer Frage dieses Chats passen.</translation></message>
<message><source>Attached to this message</source><translation>An diese Nachricht angehängt</translation></message>
<message><source>No room for {tokens}</source><translation>Kein Platz für {tokens}</translation></message>
<message><source>Only its beginning fits into the context</source><translation>Der Kontext hat nur für den Anfang Platz</translation></message>
<message><source>Reading {name}</source><translation>Lesen von {name}</translation></message>
<message><source>Remove {name}</source><translation>{name} entfernen</translation></message>
<message><source>Show {name}</source><translation>{name} anzeigen</translation></message>
<message><source>first {kept} of {tokens}</source><translation>die ersten {kept} von {tokens}</translation></message>
<message numerus="yes"><source>{n} characters</source><translation><numerusform>{n} Zeichen</numerusform><numerusform>{n} Zeichen</numerusform></translation></message>
<message><source>Copy</source><translation>Kopieren</translation></message>
<message><source>Put into the message</source><translation>In die Nachricht einfügen</translation></message>
<message><source>Text of {name}</source><translation>Text von {name}</translation></message>
<message><source>Documents and text files (*)</source><translation>Dokumente und Textdateien (*)</translation></message>
<message><source>How answers are made: {words}</source><translation>Wie Antworten entstehen: {words}</translation></message>
<message><source>Load {model}; the chat stays</source><translation>{model} laden; der Chat bleibt</translation></message>
<message><source>Model: {words}</source><translation>Modell: {words}</translation></message>
<message><source>Send  (Enter)</source><translation>Senden  (Enter)</translation></message>
<message><source>Stop</source><translation>Stoppen</translation></message>
<message><source>Stop  (Esc)</source><translation>Stoppen  (Esc)</translation></message>
<message><source>Stop loading</source><translation>Laden stoppen</translation></message>
<message><source>The attachments are counted first</source><translation>Was angehängt ist, wird erst gezählt</translation></message>
<message><source>Thinking: {words}</source><translation>Nachdenken: {words}</translation></message>
<message><source>{model} is loaded first</source><translation>{model} wird zuerst geladen</translation></message>
<message><source>{name} does not fit into the context: remove it</source><translation>Der Kontext hat keinen Platz für {name}: Entfernen Sie es</translation></message>
<message><source>{state}: the answer starts once the model is loaded</source><translation>{state}: Die Antwort beginnt, sobald das Modell da ist</translation></message>
<message><source>Change its size</source><translation>Größe ändern</translation></message>
<message><source>Context used, {percent} percent</source><translation>Kontext belegt, {percent} Prozent</translation></message>
<message><source>Drop oldest</source><translation>Älteste weglassen</translation></message>
<message numerus="yes"><source>Full: {n} messages left out</source><translation><numerusform>Voll: {n} Nachricht ausgelassen</numerusform><numerusform>Voll: {n} Nachrichten ausgelassen</numerusform></translation></message>
<message><source>It is counted once the model is loaded.</source><translation>Gezählt wird, sobald das Modell da ist.</translation></message>
<message><source>Keep the beginning</source><translation>Anfang behalten</translation></message>
<message><source>Not known yet</source><translation>Noch nicht bekannt</translation></message>
<message><source>Nothing is left out. When the chat no longer fits, the next message is not answered.</source><translation>Nichts wird weggelassen. Passt der Chat nicht mehr, wird die nächste Nachricht nicht beantwortet.</translation></message>
<message><source>That leaves no room for an answer.</source><translation>Für eine Antwort bleibt kein Platz.</translation></message>
<message><source>The first question, its answer and the newest messages stay. Those in between are left out.</source><translation>Die erste Frage mit Antwort bleibt, ebenso die neuesten Nachrichten. Was dazwischen liegt, wird weggelassen.</translation></message>
<message><source>The model writes a summary of the oldest messages and reads the summary instead. Now and then, an answer starts later because of this.</source><translation>Das Modell fasst die ältesten Nachrichten zusammen und liest stattdessen die Zusammenfassung. Hin und wieder beginnt eine Antwort deshalb später.</translation></message>
<message><source>The next message does not fit</source><translation>Die nächste Nachricht passt nicht</translation></message>
<message><source>The next message takes {used} of {tokens}</source><translation>Die nächste Nachricht braucht {used} von {tokens}</translation></message>
<message><source>The oldest messages are left out. The chat goes on, and they stay here to read.</source><translation>Die ältesten Nachrichten werden weggelassen. Der Chat geht weiter, und sie bleiben hier lesbar.</translation></message>
<message><source>The question, what came before it, and the answer so far.</source><translation>Die Frage, was davor kam, und die Antwort bis jetzt.</translation></message>
<message><source>What happens when it is full</source><translation>Was bei vollem Kontext geschieht</translation></message>
<message><source>When the context is full</source><translation>Wenn der Kontext voll ist</translation></message>
<message numerus="yes"><source>{n} earlier messages left out</source><translation><numerusform>{n} frühere Nachricht weggelassen</numerusform><numerusform>{n} frühere Nachrichten weggelassen</numerusform></translation></message>
<message numerus="yes"><source>{n} messages are left out after the first answer.</source><translation><numerusform>{n} Nachricht nach der ersten Antwort fällt weg.</numerusform><numerusform>{n} Nachrichten nach der ersten Antwort fallen weg.</numerusform></translation></message>
<message numerus="yes"><source>{n} messages are left out at the beginning.</source><translation><numerusform>{n} Nachricht am Anfang fällt weg.</numerusform><numerusform>{n} Nachrichten am Anfang fallen weg.</numerusform></translation></message>
<message numerus="yes"><source>{n} tokens are left for the answer.</source><translation><numerusform>{n} Token bleibt übrig.</numerusform><numerusform>{n} Token bleiben für die Antwort.</numerusform></translation></message>
<message><source>{percent}% of {total}</source><translation>{percent}% von {total}</translation></message>
<message><source>{used} of {tokens} are in use</source><translation>{used} von {tokens} sind belegt</translation></message>
<message><source>{used} of {tokens} of context</source><translation>{used} von {tokens} Kontext</translation></message>
<message><source>Answer on this PC</source><translation>Auf diesem PC antworten</translation></message>
<message><source>Answer with Hearth</source><translation>Mit Hearth antworten</translation></message>
<message><source>From the next message on, this chat stays on this PC</source><translation>Ab der nächsten Nachricht wird nichts gesendet</translation></message>
<message><source>Sent to {server}</source><translation>An {server}</translation></message>
<message><source>What you write in this chat leaves this PC.</source><translation>Was Sie in diesem Chat schreiben, verlässt diesen PC.</translation></message>
<message><source>What you write is sent to {server}, another program on this PC.</source><translation>Was Sie schreiben, geht an {server}, ein anderes Programm auf diesem PC.</translation></message>
<message><source>What you write is sent to {server}, {host}. It leaves this PC.</source><translation>Was Sie schreiben, geht an {server}, {host}. Es verlässt diesen PC.</translation></message>
<message><source>another program on this PC</source><translation>ein anderes Programm auf diesem PC</translation></message>
<message><source>Add a folder…</source><translation>Ordner hinzufügen…</translation></message>
<message><source>Documents of this chat</source><translation>Dokumente dieses Chats</translation></message>
<message><source>Documents: no folder is on</source><translation>Dokumente: kein Ordner ist eingeschaltet</translation></message>
<message><source>Documents: they stay on this PC and are not sent</source><translation>Dokumente: Sie bleiben auf diesem PC und werden nicht gesendet</translation></message>
<message numerus="yes"><source>Documents: {n} folders are on</source><translation><numerusform>Dokumente: {n} Ordner ist eingeschaltet</numerusform><numerusform>Dokumente: {n} Ordner sind eingeschaltet</numerusform></translation></message>
<message><source>Manage documents…</source><translation>Dokumente verwalten …</translation></message>
<message><source>The model can answer from folders of your documents. They stay where they are, on this PC.</source><translation>Das Modell kann aus Ordnern Ihrer Dokumente antworten. Sie bleiben, wo sie sind: auf diesem PC.</translation></message>
<message><source>This chat is sent to {server}. Your documents stay on this PC: they are not searched for it, and passages of them are not sent.</source><translation>Dieser Chat wird an {server} gesendet. Ihre Dokumente bleiben auf diesem PC: Sie werden dafür nicht durchsucht, und Stellen aus ihnen werden nicht gesendet.</translation></message>
<message><source>Edit them</source><translation>Bearbeiten</translation></message>
<message><source>Instructions for this chat</source><translation>Anweisungen für diesen Chat</translation></message>
<message><source>Open the settings of the project</source><translation>Einstellungen des Projekts öffnen</translation></message>
<message><source>Enter sends, Shift+Enter starts a new line</source><translation>Enter sendet, Umschalt und Enter bricht die Zeile um</translation></message>
<message><source>Folded because the text is very long. It is sent whole. Click, or press {keys}, to show more of it.</source><translation>Eingeklappt, weil der Text sehr lang ist. Er wird ganz gesendet. Klicken Sie, oder drücken Sie {keys}, um mehr zu sehen.</translation></message>
<message><source>Message</source><translation>Nachricht</translation></message>
<message><source>Sent to {server}, another program on this PC.</source><translation>Geht an {server}, ein anderes Programm auf diesem PC.</translation></message>
<message><source>Sent to {server}, not on this PC.</source><translation>An {server} gesendet, nicht auf diesem PC.</translation></message>
<message><source>Write a message</source><translation>Nachricht schreiben</translation></message>
<message><source>Write the beginning of a text; this base model continues it</source><translation>Schreiben Sie den Anfang eines Textes; dieses Basismodell setzt ihn fort</translation></message>
<message><source>Write to {server}</source><translation>An {server} schreiben</translation></message>
<message><source>Don't send</source><translation>Nicht senden</translation></message>
<message><source>Edit the next message</source><translation>Nächste Nachricht bearbeiten</translation></message>
<message><source>Sent after this answer</source><translation>Wird nach dieser Antwort gesendet</translation></message>
<message><source>Sent after this answer: {words}</source><translation>Wird nach dieser Antwort gesendet: {words}</translation></message>
<message numerus="yes"><source>{n} attachments</source><translation><numerusform>{n} Anhang</numerusform><numerusform>{n} Anhänge</numerusform></translation></message>
<message><source>As in the settings</source><translation>Wie in den Einstellungen</translation></message>
<message><source>Filter personas</source><translation>Personas filtern</translation></message>
<message><source>No persona</source><translation>Keine Persona</translation></message>
<message><source>No persona has “{typed}”.</source><translation>Keine Persona hat „{typed}“.</translation></message>
<message><source>Type to filter</source><translation>Tippen zum Filtern</translation></message>
<message><source>As in Settings</source><translation>Wie in den Einstellungen</translation></message>
<message><source>Changed for this chat</source><translation>Für diesen Chat geändert</translation></message>
<message><source>Chosen for this model</source><translation>Für dieses Modell gewählt</translation></message>
<message><source>Chosen for this model: {mode}.</source><translation>Für dieses Modell gewählt: {mode}.</translation></message>
<message><source>Every neuron</source><translation>Jedes Neuron</translation></message>
<message><source>How answers are made</source><translation>Wie Antworten entstehen</translation></message>
<message><source>None</source><translation>Keine</translation></message>
<message><source>Only the neurons that the predictors expect</source><translation>Nur die Neuronen, die die Prädiktoren erwarten</translation></message>
<message><source>Preset</source><translation>Vorgabe</translation></message>
<message><source>Skips inactive neurons; the same text as dense</source><translation>Überspringt inaktive Neuronen; derselbe Text wie dicht</translation></message>
<message><source>Stop using this for every {model} chat</source><translation>Nicht mehr für jeden Chat mit {model} nutzen</translation></message>
<message><source>This chat uses a server. It receives temperature, top p, seed, the longest answer and the stop texts.</source><translation>Dieser Chat geht an einen Server. Temperatur, Top p, Startwert, die längste Antwort und die Stopptexte gehen mit.</translation></message>
<message><source>This model has no predictors, so it answers without them.</source><translation>Dieses Modell bringt keine Prädiktoren mit und antwortet daher ohne sie.</translation></message>
<message><source>This model has no predictors, so it answers {mode} instead.</source><translation>Dieses Modell bringt keine Prädiktoren mit und antwortet daher {mode}.</translation></message>
<message><source>Use this for every chat with {model}</source><translation>Für jeden Chat mit {model} nutzen</translation></message>
<message><source>min p</source><translation>min p</translation></message>
<message><source>seed</source><translation>Startwert</translation></message>
<message><source>temperature</source><translation>Temperatur</translation></message>
<message><source>top k</source><translation>top k</translation></message>
<message><source>top p</source><translation>top p</translation></message>
<message><source>A whole number from {low} to {high}</source><translation>Eine ganze Zahl von {low} bis {high}</translation></message>
<message><source>An answer ends before any of these, one per line; \n is a line break. At most {most}.</source><translation>Eine Antwort endet vor jedem davon, eines je Zeile; \n ist ein Zeilenumbruch. Höchstens {most}.</translation></message>
<message><source>Nothing</source><translation>Nichts</translation></message>
<message><source>Stop at</source><translation>Stopp bei</translation></message>
<message><source>Stop at. {words}</source><translation>Stopp bei. {words}</translation></message>
<message><source>The model's</source><translation>Wie im Modell</translation></message>
<message><source>{title}: as it was</source><translation>{title}: wie zuvor</translation></message>
<message><source>Changed for this chat. Takes effect with the next answer.</source><translation>Für diesen Chat geändert. Gilt ab der nächsten Antwort.</translation></message>
<message><source>Changes take effect with the next answer.</source><translation>Änderungen gelten ab der nächsten Antwort.</translation></message>
<message><source>Reset</source><translation>Zurücksetzen</translation></message>
<message><source>Sampling in this chat</source><translation>Sampling in diesem Chat</translation></message>
<message><source>Save</source><translation>Speichern</translation></message>
<message><source>Save as a preset</source><translation>Als Vorgabe speichern</translation></message>
<message><source>{preset}, for this chat</source><translation>{preset}, für diesen Chat</translation></message>
<message><source>{variable} is not filled in. Send again to send it as it is.</source><translation>{variable} ist nicht ausgefüllt. Senden Sie noch einmal, um die Nachricht so zu senden.</translation></message>
<message><source>Ask again before every call</source><translation>Vor jedem Aufruf wieder fragen</translation></message>
<message><source>Built in</source><translation>Eingebaut</translation></message>
<message><source>Manage tools…</source><translation>Werkzeuge verwalten …</translation></message>
<message numerus="yes"><source>The tools that are on take {n} tokens of the context.</source><translation><numerusform>Die eingeschalteten Werkzeuge belegen {n} Token des Kontexts.</numerusform><numerusform>Die eingeschalteten Werkzeuge belegen {n} Token des Kontexts.</numerusform></translation></message>
<message><source>Tools of this chat</source><translation>Werkzeuge dieses Chats</translation></message>
<message><source>Tools: none is on</source><translation>Werkzeuge: keines eingeschaltet</translation></message>
<message numerus="yes"><source>Tools: {n} are on</source><translation><numerusform>Werkzeuge: {n} eingeschaltet</numerusform><numerusform>Werkzeuge: {n} eingeschaltet</numerusform></translation></message>
<message><source>Not available</source><translation>Nicht verfügbar</translation></message>
<message><source>Paused at {n} of {total}</source><translation>Angehalten bei {n} von {total}</translation></message>
<message><source>Reading {n} of {total}</source><translation>{n} von {total} gelesen</translation></message>
<message><source>chapter {n}</source><translation>Kapitel {n}</translation></message>
<message><source>line {n}</source><translation>Zeile {n}</translation></message>
<message><source>page {n}</source><translation>Seite {n}</translation></message>
<message><source>sheet {name}</source><translation>Tabelle {name}</translation></message>
<message><source>sheet {n}</source><translation>Tabelle {n}</translation></message>
<message><source>slide {n}</source><translation>Folie {n}</translation></message>
<message><source>whole text</source><translation>ganzer Text</translation></message>
<message numerus="yes"><source>{n} could not be read</source><translation><numerusform>{n} konnte nicht gelesen werden</numerusform><numerusform>{n} konnten nicht gelesen werden</numerusform></translation></message>
<message numerus="yes"><source>{n} documents</source><translation><numerusform>{n} Dokument</numerusform><numerusform>{n} Dokumente</numerusform></translation></message>
<message><source>Add a folder, and the model can answer from the documents in it. They stay where they are. Hearth keeps an index of their text on this PC and sends nothing.</source><translation>Fügen Sie einen Ordner hinzu, und das Modell kann aus den Dokumenten darin antworten. Sie bleiben, wo sie sind. Hearth führt auf diesem PC ein Verzeichnis ihres Textes und sendet nichts.</translation></message>
<message numerus="yes"><source>And {n} more</source><translation><numerusform>Und {n} weiteres</numerusform><numerusform>Und {n} weitere</numerusform></translation></message>
<message><source>Collapsed</source><translation>Zugeklappt</translation></message>
<message><source>Documents are searched by words and by meaning.</source><translation>Dokumente werden nach Wörtern und nach dem Sinn durchsucht.</translation></message>
<message><source>Documents are searched by words. A small embedding model also finds synonyms, in other languages too.</source><translation>Dokumente werden nach Wörtern durchsucht. Ein kleines Embedding-Modell findet auch Synonyme, auch in anderen Sprachen.</translation></message>
<message><source>Documents are searched by words. An embedding model such as {name} ({size}) also finds synonyms, in other languages too.</source><translation>Dokumente werden nach Wörtern durchsucht. Ein Embedding-Modell wie {name} ({size}) findet auch Synonyme, auch in anderen Sprachen.</translation></message>
<message><source>Expanded</source><translation>Aufgeklappt</translation></message>
<message><source>Further documents are left out</source><translation>Weitere Dokumente werden ausgelassen</translation></message>
<message><source>Go on reading</source><translation>Weiterlesen</translation></message>
<message><source>No folders yet</source><translation>Noch keine Ordner</translation></message>
<message><source>Not available. Is its drive connected? Hearth searches what it has already read from it.</source><translation>Nicht verfügbar. Ist das Laufwerk angeschlossen? Hearth durchsucht, was es schon davon gelesen hat.</translation></message>
<message><source>Open {name}</source><translation>{name} öffnen</translation></message>
<message><source>Pause reading</source><translation>Lesen anhalten</translation></message>
<message><source>Remove {name} from documents</source><translation>{name} aus den Dokumenten entfernen</translation></message>
<message><source>Search by meaning: {name}</source><translation>Nach dem Sinn suchen: {name}</translation></message>
<message><source>Switch folders on in a chat with the button below the message field. Documents stay where they are. Hearth keeps an index of their text on this PC and sends nothing.</source><translation>Schalten Sie Ordner in einem Chat mit der Taste unter dem Nachrichtenfeld ein. Dokumente bleiben, wo sie sind. Hearth führt auf diesem PC ein Verzeichnis ihres Textes und sendet nichts.</translation></message>
<message><source>The index of documents cannot be written: {why}. Hearth tries again every half a minute. If the disk is full, make some space.</source><translation>Der Index der Dokumente kann nicht geschrieben werden: {why}. Hearth versucht es jede halbe Minute erneut. Wenn der Datenträger voll ist, schaffen Sie Platz.</translation></message>
<message><source>The model could not read the passages. There may be too little free RAM. It is tried again every minute; until then, words alone are searched.</source><translation>Das Modell konnte die Stellen nicht lesen. Vielleicht ist zu wenig RAM frei. Es wird jede Minute neu versucht; bis dahin wird nur nach Wörtern gesucht.</translation></message>
<message numerus="yes"><source>{n} passages are still to be read by it, while nothing else is computed.</source><translation><numerusform>{n} Stelle muss es noch lesen, während sonst nichts berechnet wird.</numerusform><numerusform>{n} Stellen muss es noch lesen, während sonst nichts berechnet wird.</numerusform></translation></message>
<message><source>Couldn't find the passage on this page. The file may have changed since. Below is the text that went to the model.</source><translation>Die Stelle wurde auf dieser Seite nicht gefunden. Die Datei hat sich vielleicht geändert. Unten steht der Text, den das Modell gelesen hat.</translation></message>
<message><source>No program opened it. Its folder is {folder}.</source><translation>Kein Programm hat sie geöffnet. Ihr Ordner ist {folder}.</translation></message>
<message><source>Open file</source><translation>Datei öffnen</translation></message>
<message><source>Page</source><translation>Seite</translation></message>
<message><source>Picture of {place} of {name}</source><translation>Bild von {place} von {name}</translation></message>
<message><source>Show in folder</source><translation>Im Ordner zeigen</translation></message>
<message><source>Text</source><translation>Text</translation></message>
<message><source>The file has changed since. Below is the text that went to the model.</source><translation>Die Datei hat sich seither geändert. Unten steht der Text, den das Modell gelesen hat.</translation></message>
<message><source>The file is no longer there. Below is the text that went to the model.</source><translation>Die Datei ist nicht mehr vorhanden. Unten steht der Text, den das Modell gelesen hat.</translation></message>
<message><source>This file is in none of your folders of documents, so Hearth doesn't open it. Below is the text that went to the model.</source><translation>Diese Datei liegt in keinem Ihrer Ordner mit Dokumenten, daher öffnet Hearth sie nicht. Unten steht der Text, den das Modell gelesen hat.</translation></message>
<message><source>View</source><translation>Ansicht</translation></message>
<message><source>{why} Below is the text that went to the model.</source><translation>{why} Unten steht der Text, den das Modell gelesen hat.</translation></message>
<message><source>Active before too</source><translation>Schon davor aktiv</translation></message>
<message><source>Alternatives</source><translation>Alternativen</translation></message>
<message><source>Bytes read</source><translation>Gelesene Bytes</translation></message>
<message><source>Choose one: the model continues from it in another version of this answer.</source><translation>Wählen Sie eine: Das Modell setzt damit eine weitere Fassung dieser Antwort fort.</translation></message>
<message numerus="yes"><source>Computed in one run with {n} guesses. Its own bytes and neurons are not known.</source><translation><numerusform>In einem Durchlauf mit {n} Vermutung berechnet. Die eigenen Bytes und Neuronen sind nicht bekannt.</numerusform><numerusform>In einem Durchlauf mit {n} Vermutungen berechnet. Die eigenen Bytes und Neuronen sind nicht bekannt.</numerusform></translation></message>
<message><source>Copied</source><translation>Kopiert</translation></message>
<message><source>Copy ids</source><translation>IDs kopieren</translation></message>
<message><source>Copy text</source><translation>Text kopieren</translation></message>
<message><source>Cost</source><translation>Aufwand</translation></message>
<message><source>Export…</source><translation>Exportieren…</translation></message>
<message><source>Find</source><translation>Suchen</translation></message>
<message><source>Find in the tokens</source><translation>In den Token suchen</translation></message>
<message><source>In this model and mode, every neuron is active.</source><translation>In diesem Modell und Modus ist jedes Neuron aktiv.</translation></message>
<message><source>Layer {layer}: experts {ids}</source><translation>Schicht {layer}: Experten {ids}</translation></message>
<message><source>Layer {layer}: experts {ids}; {n} on the GPU</source><translation>Schicht {layer}: Experten {ids}; {n} auf der GPU</translation></message>
<message><source>More shading: less likely. Dotted: not the most likely token.</source><translation>Stärker hinterlegt: weniger wahrscheinlich. Gepunktet: nicht das wahrscheinlichste Token.</translation></message>
<message><source>Neurons active</source><translation>Aktive Neuronen</translation></message>
<message><source>Not found</source><translation>Nicht gefunden</translation></message>
<message><source>Record from now on</source><translation>Ab jetzt aufzeichnen</translation></message>
<message><source>This token comes from reading the whole prompt, which its time includes. Its own bytes and neurons are not known.</source><translation>Dieses Token ergibt sich beim Lesen des ganzen Prompts, das seine Zeit einschließt. Die eigenen Bytes und Neuronen sind nicht bekannt.</translation></message>
<message><source>This token was guessed, and computed in one run with an earlier one. Its own bytes and neurons are not known.</source><translation>Dieses Token wurde vermutet und in einem Durchlauf mit einem früheren berechnet. Die eigenen Bytes und Neuronen sind nicht bekannt.</translation></message>
<message><source>Token {place} of {n}, id {id}</source><translation>Token {place} von {n}, ID {id}</translation></message>
<message><source>Token {words}, id {id}</source><translation>Token {words}, ID {id}</translation></message>
<message><source>Token {words}, {share}</source><translation>Token {words}, {share}</translation></message>
<message><source>Tokens of the answer</source><translation>Token der Antwort</translation></message>
<message><source>Tokens of the prompt</source><translation>Token des Prompts</translation></message>
<message><source>You chose this token; nothing was computed for it.</source><translation>Sie haben dieses Token gewählt; dafür wurde nichts berechnet.</translation></message>
<message><source>not known here</source><translation>hier nicht bekannt</translation></message>
<message><source>prompt of {n}</source><translation>Prompt mit {n}</translation></message>
<message><source>{cpu}, all on the CPU</source><translation>{cpu}, alle auf der CPU</translation></message>
<message><source>{gpu} on the GPU, {cpu} on the CPU</source><translation>{gpu} auf der GPU, {cpu} auf der CPU</translation></message>
<message><source>{n} more were too many to keep</source><translation>{n} mehr waren zu viele zum Aufbewahren</translation></message>
<message><source>Active neurons by layer, from {low} to {high}</source><translation>Aktive Neuronen je Schicht, {low} bis {high}</translation></message>
<message><source>Copy neuron ids</source><translation>Neuronen-IDs kopieren</translation></message>
<message><source>Ids of the active neurons</source><translation>IDs der aktiven Neuronen</translation></message>
<message><source>Layer {layer}: {n} of {all} neurons active</source><translation>Schicht {layer}: {n} von {all} Neuronen aktiv</translation></message>
<message><source>Layer {layer}: {share} active</source><translation>Schicht {layer}: {share} aktiv</translation></message>
<message><source>Neuron {neuron}: active</source><translation>Neuron {neuron}: aktiv</translation></message>
<message><source>Neuron {neuron}: active only for the token before</source><translation>Neuron {neuron}: nur beim Token davor aktiv</translation></message>
<message><source>Neuron {neuron}: active, as for the token before</source><translation>Neuron {neuron}: aktiv, wie beim Token davor</translation></message>
<message><source>Neuron {neuron}: not active</source><translation>Neuron {neuron}: nicht aktiv</translation></message>
<message><source>Which neurons were active is kept only for the last {n} of this answer's tokens.</source><translation>Welche Neuronen aktiv waren, ist nur für die letzten {n} Token dieser Antwort aufbewahrt.</translation></message>
<message><source>Which neurons were active was not recorded for this answer.</source><translation>Welche Neuronen aktiv waren, wurde bei dieser Antwort nicht aufgezeichnet.</translation></message>
<message><source>under 0.1%</source><translation>unter 0,1%</translation></message>
<message><source>{n} also for the token before, in the stronger colour</source><translation>{n} auch beim Token davor, in der kräftigeren Farbe</translation></message>
<message><source>Commands, chats, models, settings</source><translation>Befehle, Chats, Modelle, Einstellungen</translation></message>
<message><source>Find commands, chats, models and settings</source><translation>Befehle, Chats, Modelle und Einstellungen finden</translation></message>
<message><source>Found</source><translation>Gefunden</translation></message>
<message><source>Commands</source><translation>Befehle</translation></message>
<message><source>Messages</source><translation>Nachrichten</translation></message>
<message><source>Search all chats for “{text}”</source><translation>Alle Chats nach „{text}“ durchsuchen</translation></message>
<message><source>use load switch model</source><translation>nutzen laden wechseln modell</translation></message>
<message><source>use server switch model</source><translation>benutzen server wechseln modell</translation></message>
<message><source>Ctrl+K finds these and everything else by name.</source><translation>Strg+K findet diese und alles andere beim Namen.</translation></message>
<message><source>Now</source><translation>Jetzt</translation></message>
<message><source>Speed {rate}</source><translation>Tempo {rate}</translation></message>
<message><source>now</source><translation>jetzt</translation></message>
<message><source>tokens per second</source><translation>Token pro Sekunde</translation></message>
<message><source>{age} s ago</source><translation>vor {age} s</translation></message>
<message><source>{figure} in all
Other programs: {others}</source><translation>{figure} insgesamt
Andere Programme: {others}</translation></message>
<message><source>No GPU is measured: {why}.</source><translation>Es wird keine GPU gemessen: {why}.</translation></message>
<message><source>The neurons of a model appear here once one is loaded.</source><translation>Hier sind die Neuronen eines Modells zu sehen, sobald eines geladen ist.</translation></message>
<message><source>The placement of the neurons is not known yet.</source><translation>Wo die Neuronen liegen, ist noch nicht bekannt.</translation></message>
<message><source>{mode} mode</source><translation>Modus {mode}</translation></message>
<message><source>Layer {layer}, experts {first} to {last} of {n}, most chosen first, {where}, {share}% of tokens</source><translation>Schicht {layer}, Experten {first} bis {last} von {n}, die am häufigsten gewählten zuerst, {where}, {share}% der Tokens</translation></message>
<message><source>Layer {layer}, neurons {first} to {last}% by how busy they are, {where}</source><translation>Schicht {layer}, Neuronen {first} bis {last}% nach Eifer, {where}</translation></message>
<message><source>Map of experts, {layers} layers, {there} of the experts on the GPU</source><translation>Karte der Experten, {layers} Schichten, {there} der Experten auf der GPU</translation></message>
<message><source>Map of neurons, {layers} layers, {there} of the neurons on the GPU</source><translation>Karte der Neuronen, {layers} Schichten, {there} der Neuronen auf der GPU</translation></message>
<message><source>Map of neurons.</source><translation>Karte der Neuronen.</translation></message>
<message><source>on the CPU</source><translation>auf der CPU</translation></message>
<message><source>{part}, {fired}% of them fired</source><translation>{part}, {fired}% davon waren aktiv</translation></message>
<message><source>Ask something: this shows where the time of each token goes, from attention to choosing the token.</source><translation>Fragen Sie etwas: Hier steht, wohin die Zeit jedes Tokens geht, von der Aufmerksamkeit bis zur Wahl des Tokens.</translation></message>
<message><source>Its parts are not measured</source><translation>Seine Teile werden nicht gemessen</translation></message>
<message><source>Time of a token</source><translation>Zeit eines Tokens</translation></message>
<message><source>Time of a token {total}</source><translation>Zeit eines Tokens {total}</translation></message>
<message><source>{stage} on the {side}</source><translation>{stage} auf der {side}</translation></message>
<message><source>{time}, {share}% of the time</source><translation>{time}, {share}% der Zeit</translation></message>
<message><source>From the next message on, {model} answers this chat</source><translation>Ab der nächsten Nachricht antwortet {model} in diesem Chat</translation></message>
<message><source>the model</source><translation>das Modell</translation></message>
<message><source>A smaller model guesses the next words, and this one checks them. Answers stay the same and come faster.</source><translation>Ein kleineres Modell rät die nächsten Wörter, und dieses prüft sie. Die Antworten bleiben gleich und kommen schneller.</translation></message>
<message><source>Guess with a smaller model</source><translation>Mit einem kleineren Modell raten</translation></message>
<message><source>No model guesses now. {reason}</source><translation>Zurzeit rät kein Modell. {reason}</translation></message>
<message><source>{model} guesses now.</source><translation>{model} rät gerade.</translation></message>
<message><source>Asks for access</source><translation>Verlangt Zugriff</translation></message>
<message><source>Models on the hub</source><translation>Modelle auf dem Hub</translation></message>
<message><source>On the Hugging Face hub</source><translation>Auf dem Hugging-Face-Hub</translation></message>
<message><source>Press Enter to search the hub. Only then are your words sent to it.</source><translation>Mit der Eingabetaste durchsuchen Sie den Hub. Erst dann werden Ihre Wörter dorthin gesendet.</translation></message>
<message><source>Search the hub</source><translation>Hub durchsuchen</translation></message>
<message><source>Searching</source><translation>Suchen</translation></message>
<message><source>Show files</source><translation>Dateien zeigen</translation></message>
<message><source>Show files: {repo}</source><translation>Dateien zeigen: {repo}</translation></message>
<message><source>The hub has nothing for “{text}”</source><translation>Der Hub hat nichts zu „{text}“</translation></message>
<message><source>The hub has nothing more for “{text}”</source><translation>Der Hub hat nichts weiter zu „{text}“</translation></message>
<message><source>Try fewer words, or paste a repository link.</source><translation>Nehmen Sie weniger Wörter, oder fügen Sie einen Link zum Repository ein.</translation></message>
<message><source>asks for access</source><translation>verlangt Zugriff</translation></message>
<message><source>{downloads} downloads</source><translation>{downloads} Downloads</translation></message>
<message numerus="yes"><source>{n} likes</source><translation><numerusform>{n} Like</numerusform><numerusform>{n} Likes</numerusform></translation></message>
<message><source>A GGUF file</source><translation>Eine GGUF-Datei</translation></message>
<message><source>A model folder</source><translation>Ein Modellordner</translation></message>
<message><source>A server</source><translation>Ein Server</translation></message>
<message><source>Add a GGUF file</source><translation>GGUF-Datei hinzufügen</translation></message>
<message><source>Add a model</source><translation>Modell hinzufügen</translation></message>
<message><source>Adding {name}</source><translation>{name} hinzufügen</translation></message>
<message><source>Check the files</source><translation>Dateien prüfen</translation></message>
<message><source>Checking {name}</source><translation>{name} prüfen</translation></message>
<message><source>Copy the repository id</source><translation>Repository-Kennung kopieren</translation></message>
<message><source>Copying {name}</source><translation>{name} kopieren</translation></message>
<message><source>Details</source><translation>Details</translation></message>
<message><source>Folder for models</source><translation>Wo Modelle liegen sollen</translation></message>
<message><source>GGUF models (*.gguf)</source><translation>GGUF-Modelle (*.gguf)</translation></message>
<message><source>Models are in {folder} now</source><translation>Modelle liegen jetzt in {folder}</translation></message>
<message><source>More</source><translation>Mehr</translation></message>
<message><source>Moving the models to {name}</source><translation>Modelle nach {name} verschieben</translation></message>
<message><source>Moving {name}</source><translation>{name} verschieben</translation></message>
<message><source>Open its folder</source><translation>Ordner öffnen</translation></message>
<message><source>Open its page</source><translation>Seite öffnen</translation></message>
<message><source>Prepare for this PC</source><translation>Für diesen PC vorbereiten</translation></message>
<message><source>Refresh</source><translation>Aktualisieren</translation></message>
<message><source>Remove from list</source><translation>Aus der Liste entfernen</translation></message>
<message><source>Repository id copied</source><translation>Repository-Kennung kopiert</translation></message>
<message><source>Unload</source><translation>Entladen</translation></message>
<message><source>Working {name}</source><translation>Arbeit an {name}</translation></message>
<message><source>{name}: all files are intact</source><translation>{name}: Jede Datei ist, wie sie sein soll</translation></message>
<message><source>Prepare</source><translation>Vorbereiten</translation></message>
<message><source>Repair</source><translation>Reparieren</translation></message>
<message><source>Resume the download</source><translation>Download fortsetzen</translation></message>
<message><source>Stop preparing</source><translation>Vorbereiten stoppen</translation></message>
<message><source>Tiny and always there. Good for a first try.</source><translation>Winzig und immer da. Gut für einen ersten Versuch.</translation></message>
<message><source>What would fit?</source><translation>Was würde passen?</translation></message>
<message><source>base model</source><translation>Basismodell</translation></message>
<message><source>base model, continues text</source><translation>Basismodell, setzt Text fort</translation></message>
<message><source>embedding model</source><translation>Embedding-Modell</translation></message>
<message><source>Access</source><translation>Zugriff</translation></message>
<message><source>Files: {names}</source><translation>Dateien: {names}</translation></message>
<message><source>Folder</source><translation>Ordner</translation></message>
<message><source>GPT4All's file; Hearth never changes or deletes it</source><translation>Datei von GPT4All; Hearth ändert und löscht sie nie</translation></message>
<message><source>Jan's file; Hearth never changes or deletes it</source><translation>Datei von Jan; Hearth ändert und löscht sie nie</translation></message>
<message><source>Kind</source><translation>Art</translation></message>
<message><source>LM Studio's file; Hearth never changes or deletes it</source><translation>Datei von LM Studio; Hearth ändert und löscht sie nie</translation></message>
<message><source>Licence</source><translation>Lizenz</translation></message>
<message><source>Made by</source><translation>Gemacht von</translation></message>
<message><source>Needs an access token: its maker requires you to accept terms.</source><translation>Braucht ein Zugriffstoken: Die Hersteller verlangen, dass Sie zuerst Bedingungen zustimmen.</translation></message>
<message><source>Neurons in use</source><translation>Genutzte Neuronen</translation></message>
<message><source>Ollama's file; Hearth never changes or deletes it</source><translation>Datei von Ollama; Hearth ändert und löscht sie nie</translation></message>
<message><source>Origin</source><translation>Herkunft</translation></message>
<message><source>Parameters</source><translation>Parameter</translation></message>
<message><source>Prepared</source><translation>Vorbereitet</translation></message>
<message><source>Repository</source><translation>Repository</translation></message>
<message><source>Size</source><translation>Größe</translation></message>
<message><source>Source</source><translation>Quelle</translation></message>
<message><source>State</source><translation>Zustand</translation></message>
<message><source>The GPU computes {share}% of a token's experts, the CPU the others at the same time.</source><translation>Die GPU berechnet {share}% der Experten eines Tokens, die CPU zugleich die übrigen.</translation></message>
<message><source>The GPU computes {share}% of the active neurons, the CPU the others at the same time.</source><translation>Die GPU berechnet {share}% der aktiven Neuronen, die CPU zugleich die übrigen.</translation></message>
<message><source>Weights</source><translation>Gewichte</translation></message>
<message><source>With a context of {context} tokens.</source><translation>Mit einem Kontext von {context} Token.</translation></message>
<message><source>about {share}% per token</source><translation>etwa {share} % pro Token</translation></message>
<message><source>all (dense model)</source><translation>alle (dichtes Modell)</translation></message>
<message><source>and {more} more</source><translation>und {more} weitere</translation></message>
<message><source>chat model</source><translation>Chatmodell</translation></message>
<message><source>copied here</source><translation>hierher kopiert</translation></message>
<message><source>downloaded</source><translation>heruntergeladen</translation></message>
<message><source>in the hub's cache; not Hearth's to delete</source><translation>im Cache des Hubs; nicht von Hearth zu löschen</translation></message>
<message><source>made here by converting</source><translation>hier durch Umwandeln entstanden</translation></message>
<message><source>models of the same family</source><translation>Modelle derselben Familie</translation></message>
<message><source>published measurements of this model</source><translation>veröffentlichten Messungen dieses Modells</translation></message>
<message><source>up to {max_context} tokens</source><translation>bis {max_context} Token</translation></message>
<message><source>used where it is; not Hearth's to delete</source><translation>genutzt, wo es liegt; nicht von Hearth zu löschen</translation></message>
<message><source>{used} of {all} experts per token</source><translation>{used} von {all} Experten je Token</translation></message>
<message><source>{where}, of {ram} that models may take.</source><translation>{where}, von {ram}, die Modelle nehmen dürfen.</translation></message>
<message><source>{where}, of {vram} of VRAM and {ram} of RAM that models may take.</source><translation>{where}, von {vram} VRAM und {ram} RAM, die Modelle nehmen dürfen.</translation></message>
<message><source>A token comes from the environment (HF_TOKEN); it takes precedence over one saved here.</source><translation>Ein Token kommt aus der Umgebung (HF_TOKEN); es hat Vorrang vor einem hier gespeicherten.</translation></message>
<message><source>Add {name}</source><translation>{name} hinzufügen</translation></message>
<message><source>Arrange the weights for this PC</source><translation>Gewichte für diesen PC anordnen</translation></message>
<message><source>Continue</source><translation>Fortsetzen</translation></message>
<message><source>Continues where the last attempt ended.</source><translation>Ein früherer Versuch wird fortgesetzt, wo er endete.</translation></message>
<message><source>Copy it</source><translation>Kopieren</translation></message>
<message><source>Count which neurons are active</source><translation>Zählen, welche Neuronen aktiv sind</translation></message>
<message><source>Delete {name}?</source><translation>{name} löschen?</translation></message>
<message><source>Finding out what would help</source><translation>Es wird ermittelt, was sich lohnt</translation></message>
<message><source>Frees {size}.</source><translation>Gibt {size} frei.</translation></message>
<message><source>From {now} to {then}.</source><translation>Von {now} auf {then}.</translation></message>
<message><source>Getting it back means downloading it again.</source><translation>Um es zurückzubekommen, muss es erneut geladen werden.</translation></message>
<message><source>Hide details</source><translation>Details ausblenden</translation></message>
<message><source>How to add it</source><translation>Wie es hinzukommt</translation></message>
<message><source>It is copied and checked. You can delete the original afterwards.</source><translation>Es wird kopiert und geprüft. Das Original darf danach weg.</translation></message>
<message><source>It is stored in this system's keyring and sent only to the hub.</source><translation>Es liegt im Schlüsselbund dieses Systems und wird nur an den Hub gesendet.</translation></message>
<message><source>It is unloaded first.</source><translation>Es wird zuerst entladen.</translation></message>
<message><source>It should reach {then}.</source><translation>Es sollte {then} erreichen.</translation></message>
<message><source>It was copied here from elsewhere.</source><translation>Es wurde von anderswo hierher kopiert.</translation></message>
<message><source>It will hardly become faster.</source><translation>Es wird kaum schneller, als es ist.</translation></message>
<message><source>Its files are not Hearth's and stay where they are.</source><translation>Die Dateien gehören nicht Hearth und bleiben, wo sie sind.</translation></message>
<message><source>Keep</source><translation>Behalten</translation></message>
<message><source>Needs {needs}.</source><translation>Braucht {needs}.</translation></message>
<message><source>No other model that Hearth knows of fits either.</source><translation>Auch kein anderes Modell, das Hearth kennt, passt.</translation></message>
<message><source>Place the neurons</source><translation>Neuronen platzieren</translation></message>
<message><source>Prepare {name} for this PC</source><translation>{name} für diesen PC vorbereiten</translation></message>
<message><source>Remove token</source><translation>Token entfernen</translation></message>
<message><source>Remove {name} from the list?</source><translation>{name} von der Liste nehmen?</translation></message>
<message><source>Some models require you to accept terms first. Accept them on the model's page, then create a read token in your account on the hub and paste it here.</source><translation>Manche Modelle verlangen zuerst die Zustimmung zu Bedingungen. Stimmen Sie auf der Seite des Modells zu, erstellen Sie dann in Ihrem Konto beim Hub ein Token mit Leserecht und fügen Sie es hier ein.</translation></message>
<message><source>Takes no extra space. It must stay there; Hearth never changes or deletes it.</source><translation>Braucht keinen Platz. Es muss dort bleiben; Hearth ändert und löscht es nie.</translation></message>
<message><source>The token is kept until you close Hearth.</source><translation>Das Token bleibt, bis Sie Hearth schließen.</translation></message>
<message><source>The token is stored in a file that only you can read.</source><translation>Das Token liegt in einer Datei, die nur Sie lesen können.</translation></message>
<message><source>The token is stored in this system's keyring.</source><translation>Das Token liegt im Schlüsselbund dieses Systems.</translation></message>
<message><source>There is nothing to prepare: it already runs here as well as it can.</source><translation>Es gibt nichts vorzubereiten: Es läuft hier schon, so gut es kann.</translation></message>
<message><source>These come nearest to it.</source><translation>Diese kommen ihm am nächsten.</translation></message>
<message><source>Train now</source><translation>Jetzt trainieren</translation></message>
<message><source>Train predictors</source><translation>Prädiktoren trainieren</translation></message>
<message><source>Train when idle</source><translation>Im Leerlauf trainieren</translation></message>
<message><source>Until the predictors are trained, a simpler one is used, which is a little slower.</source><translation>Bis Prädiktoren trainiert sind, dient ein einfacherer: etwas langsamer.</translation></message>
<message><source>Use it where it is</source><translation>Nutzen, wo es liegt</translation></message>
<message><source>{name} does not fit</source><translation>{name} passt nicht</translation></message>
<message><source>{name} is damaged</source><translation>{name} ist beschädigt</translation></message>
<message numerus="yes"><source>{n} files differ from the hub's. Repairing downloads only those.</source><translation><numerusform>Eine Datei davon ist nicht, wie der Hub sie hat. Reparieren lädt nur diese.</numerusform><numerusform>{n} Dateien davon sind nicht, wie der Hub sie hat. Reparieren lädt nur diese.</numerusform></translation></message>
<message><source>{rate} ({how})</source><translation>{rate} ({how})</translation></message>
<message><source>{size} on the disk</source><translation>{size} auf dem Datenträger</translation></message>
<message><source>{time} and {room}</source><translation>{time} und {room}</translation></message>
<message><source>Family</source><translation>Familie</translation></message>
<message><source>Filters</source><translation>Filter</translation></message>
<message><source>Sort</source><translation>Sortierung</translation></message>
<message><source>Not on this PC</source><translation>Nicht auf diesem PC</translation></message>
<message><source>Other programs on this PC</source><translation>Andere Programme auf diesem PC</translation></message>
<message><source>about</source><translation>etwa</translation></message>
<message><source>in use</source><translation>in Gebrauch</translation></message>
<message><source>in {server}, another program on this PC</source><translation>in {server}, einem anderen Programm auf diesem PC</translation></message>
<message><source>on {server}, not on this PC</source><translation>auf {server}, nicht auf diesem PC</translation></message>
<message><source>All models</source><translation>Alle Modelle</translation></message>
<message><source>Answer again with</source><translation>Neue Antwort von</translation></message>
<message><source>Filter models</source><translation>Modelle filtern</translation></message>
<message><source>Looking for models on this PC</source><translation>Nachsehen, was auf diesem PC ist</translation></message>
<message><source>No models match “{typed}”.</source><translation>Kein Modell passt zu „{typed}“.</translation></message>
<message><source>Unload {model}</source><translation>{model} entladen</translation></message>
<message><source>Add a model from this PC</source><translation>Modell von diesem PC hinzufügen</translation></message>
<message><source>Checking this PC</source><translation>Dieser PC wird geprüft</translation></message>
<message><source>Clear the search  (Esc)</source><translation>Suche leeren  (Esc)</translation></message>
<message><source>Drop a GGUF file or a model folder</source><translation>GGUF-Datei oder Modellordner hier ablegen</translation></message>
<message><source>Filter models; Enter searches the hub, or opens a repository link</source><translation>Modelle filtern; die Eingabetaste durchsucht den Hub oder öffnet einen Repository-Link</translation></message>
<message><source>Filter; Enter searches the hub</source><translation>Filtern; Eingabe durchsucht den Hub</translation></message>
<message><source>Hearth asks whether to copy it or to use it where it is.</source><translation>Hearth fragt, ob es kopiert oder an Ort und Stelle genutzt wird.</translation></message>
<message><source>About {share} of the experts that a token uses are on the GPU.</source><translation>Etwa {share} der Experten, die ein Token nutzt, sind auf der GPU.</translation></message>
<message><source>Answers were no faster with {model}.</source><translation>Mit {model} waren die Antworten nicht schneller.</translation></message>
<message><source>Apply</source><translation>Anwenden</translation></message>
<message><source>Automatic, {amount}</source><translation>Automatisch, {amount}</translation></message>
<message><source>CPU only: no NVIDIA driver is installed.</source><translation>Nur CPU: Kein NVIDIA-Treiber ist installiert.</translation></message>
<message><source>Does not fit</source><translation>Passt nicht</translation></message>
<message><source>Double click: automatic</source><translation>Doppelklick: automatisch</translation></message>
<message><source>Frees its memory. The chat stays.</source><translation>Gibt seinen Speicher zurück; der Chat bleibt</translation></message>
<message><source>GPU memory for this model</source><translation>GPU-Speicher für dieses Modell</translation></message>
<message><source>Hide the reasons</source><translation>Gründe ausblenden</translation></message>
<message><source>How the model runs here</source><translation>Wie das Modell hier läuft</translation></message>
<message><source>It could not be loaded.</source><translation>Es konnte nicht geladen werden.</translation></message>
<message><source>It does not fit with this limit</source><translation>Mit dieser Grenze passt es nicht</translation></message>
<message><source>Less leaves room for other programs; more makes answers faster.</source><translation>Weniger lässt anderen Programmen Platz; mehr macht Antworten schneller.</translation></message>
<message><source>No GPU is used: all of the model in RAM, {memory}</source><translation>Keine GPU: das ganze Modell im RAM, {memory}</translation></message>
<message><source>No GPU is used: {memory} in RAM, {disk} of experts on the disk</source><translation>Keine GPU: {memory} im RAM, {disk} an Experten auf dem Datenträger</translation></message>
<message><source>No model on this PC has the same vocabulary and is small enough.</source><translation>Kein Modell auf diesem PC hat dasselbe Vokabular und ist klein genug.</translation></message>
<message><source>Reloads the model with this limit. The chat stays.</source><translation>Lädt das Modell damit neu; der Chat bleibt</translation></message>
<message><source>The KV cache on the GPU holds {tokens} tokens until a conversation is longer. It then grows in place of weights.</source><translation>Der KV-Cache auf der GPU fasst {tokens} Token, bis ein Chat länger ist. Dann wächst er anstelle von Gewichten.</translation></message>
<message><source>The rest is in RAM: {memory}, which the CPU computes.</source><translation>Der Rest liegt im RAM: {memory}; ihn berechnet die CPU.</translation></message>
<message><source>There is room for a context of {tokens} tokens.</source><translation>Platz für einen Kontext von {tokens} Token.</translation></message>
<message><source>Why?</source><translation>Warum?</translation></message>
<message><source>now {rate}</source><translation>jetzt {rate}</translation></message>
<message><source>only {memory} of the GPU is free</source><translation>auf der GPU sind nur {memory} frei</translation></message>
<message><source>{draft} cannot guess for {model}: its vocabulary is another.</source><translation>{draft} kann nicht für {model} raten: Das Vokabular ist ein anderes.</translation></message>
<message><source>{gpu}: the attention of {some} of {layers} layers on the GPU, {memory}</source><translation>{gpu}: die Aufmerksamkeit von {some} der {layers} Schichten auf der GPU, {memory}</translation></message>
<message><source>{gpu}: the output head on the GPU, {memory}</source><translation>{gpu}: die Ausgabeschicht auf der GPU, {memory}</translation></message>
<message><source>{gpu}: {share} of the active neurons on the GPU, {memory}</source><translation>{gpu}: {share} der aktiven Neuronen auf der GPU, {memory}</translation></message>
<message><source>{gpu}: {share} of the neurons on the GPU, {memory}</source><translation>{gpu}: {share} der Neuronen auf der GPU, {memory}</translation></message>
<message><source>{gpu}: {some} of {all} experts of each layer on the GPU, {memory}</source><translation>{gpu}: {some} von {all} Experten jeder Schicht auf der GPU, {memory}</translation></message>
<message><source>{gpu}: {some} of {all} experts on the GPU, {memory}</source><translation>{gpu}: {some} von {all} Experten auf der GPU, {memory}</translation></message>
<message><source>{memory} of experts are read from the disk when they are chosen: about {part} for a token, and nearly all of them for a prompt.</source><translation>{memory} an Experten werden vom Datenträger gelesen, sobald sie gewählt werden: etwa {part} für ein Token und fast alle für einen Prompt.</translation></message>
<message><source>{memory} of memory is missing.</source><translation>Es fehlen {memory} Speicher.</translation></message>
<message><source>{model} computes one token at a time here, so guesses would not help.</source><translation>{model} berechnet hier jedes Token einzeln; Raten würde nicht helfen.</translation></message>
<message><source>{model} failed while it guessed.</source><translation>{model} ist beim Raten ausgefallen.</translation></message>
<message><source>{model} takes {memory} of RAM, and {free} are free.</source><translation>{model} braucht {memory} RAM, und {free} sind frei.</translation></message>
<message><source>{share}% of the active neurons on the GPU</source><translation>{share}% der aktiven Neuronen auf der GPU</translation></message>
<message><source>{share}% of the experts that a token uses on the GPU</source><translation>{share}% der Experten, die ein Token nutzt, auf der GPU</translation></message>
<message><source>{used} of {total} GB</source><translation>{used} von {total} GB</translation></message>
<message><source>Back to the models</source><translation>Zurück zu den Modellen</translation></message>
<message><source>Bundle</source><translation>Bundle</translation></message>
<message><source>Download: {name}, {size}</source><translation>Herunterladen: {name}, {size}</translation></message>
<message><source>GGUF</source><translation>GGUF</translation></message>
<message><source>GGUF of PowerInfer</source><translation>GGUF von PowerInfer</translation></message>
<message><source>It has no file that Hearth reads: GGUF or safetensors.</source><translation>Es enthält keine Datei, die Hearth liest: GGUF oder Safetensors.</translation></message>
<message><source>Its maker requires you to accept terms. Accept them on the model's page, then give Hearth an access token.</source><translation>Die Hersteller verlangen, dass Sie Bedingungen zustimmen: Tun Sie das einmal auf der Modellseite, und geben Sie Hearth ein Zugriffstoken.</translation></message>
<message><source>Reading the list of files</source><translation>Die Liste der Dateien wird gelesen</translation></message>
<message><source>Safetensors</source><translation>Safetensors</translation></message>
<message numerus="yes"><source>{n} files</source><translation><numerusform>{n} Datei</numerusform><numerusform>{n} Dateien</numerusform></translation></message>
<message><source>Its key is deleted from the keyring. Its chats stay, and this PC answers them from then on.</source><translation>Sein Schlüssel wird aus dem Schlüsselbund genommen. Chats, die er beantwortet hat, bleiben hier und werden danach auf diesem PC beantwortet.</translation></message>
<message><source>Remove {server}?</source><translation>{server} entfernen?</translation></message>
<message><source>Send it there</source><translation>Dorthin senden</translation></message>
<message><source>Send this chat to {server}?</source><translation>Diesen Chat an {server} senden?</translation></message>
<message><source>Your next message sends this whole chat and its attachments to {host}. Other chats stay as they are.</source><translation>Ihre nächste Nachricht sendet diesen ganzen Chat mit allen Anhängen an {host}. Andere Chats bleiben, wie sie sind.</translation></message>
<message><source>A server that speaks OpenAI's API: a program on this PC such as Ollama, or another machine. Only chats for which you choose it are sent there.</source><translation>Ein Server mit der API von OpenAI: ein Programm auf diesem PC wie Ollama oder ein anderer Rechner. Nur Chats, für die Sie ihn wählen, gehen dorthin.</translation></message>
<message><source>Address</source><translation>Adresse</translation></message>
<message><source>Any name</source><translation>Wie Sie ihn nennen</translation></message>
<message><source>Asking the server</source><translation>Server wird gefragt</translation></message>
<message><source>Asks this address which models it has</source><translation>Fragt diese Adresse, welche Modelle sie hat</translation></message>
<message><source>Choose a model first</source><translation>Wählen Sie zuerst ein Modell</translation></message>
<message><source>Enter adds “{model}”.</source><translation>Enter fügt „{model}“ hinzu.</translation></message>
<message><source>Filter models, or the name of one</source><translation>Modelle filtern, oder der Name eines Modells</translation></message>
<message><source>For another address, add another server. Chats are never moved to another address.</source><translation>Fügen Sie für eine andere Adresse einen weiteren Server hinzu. Chats wechseln nie von selbst die Adresse.</translation></message>
<message numerus="yes"><source>It has {n} models. Choose which are offered.</source><translation><numerusform>Er hat {n} Modell. Wählen Sie, ob es angeboten wird.</numerusform><numerusform>Er hat {n} Modelle. Wählen Sie, welche angeboten werden.</numerusform></translation></message>
<message><source>It lists no models. Type the name of one.</source><translation>Er nennt kein Modell. Geben Sie einen Namen ein.</translation></message>
<message><source>Key</source><translation>Schlüssel</translation></message>
<message><source>Leave empty if it needs none</source><translation>Leer lassen, wenn keiner nötig ist</translation></message>
<message><source>List its models</source><translation>Modelle auflisten</translation></message>
<message><source>Name</source><translation>Name</translation></message>
<message><source>Not encrypted: others in this network can read what is sent.</source><translation>Nicht verschlüsselt: Andere in diesem Netz können mitlesen.</translation></message>
<message><source>The key is stored in this system's keyring and sent only to this address.</source><translation>Der Schlüssel liegt im Schlüsselbund dieses Systems und wird nur an diese Adresse gesendet.</translation></message>
<message><source>Type to filter, or a model's name</source><translation>Tippen zum Filtern, oder ein Modellname</translation></message>
<message><source>Unchanged</source><translation>Bleibt, wie er ist</translation></message>
<message><source>Change {server}</source><translation>{server} ändern</translation></message>
<message><source>New chat with {model} on {server}</source><translation>Neuer Chat mit {model} auf {server}</translation></message>
<message><source>No model chosen</source><translation>Kein Modell gewählt</translation></message>
<message><source>Only chats for which you choose one are sent there.</source><translation>Nur Chats, für die Sie einen wählen, werden dorthin gesendet.</translation></message>
<message><source>Servers</source><translation>Server</translation></message>
<message><source>Progress</source><translation>Fortschritt</translation></message>
<message><source>Queued: {names}</source><translation>Wartet: {names}</translation></message>
<message><source>Stop: {words}</source><translation>Stoppen: {words}</translation></message>
<message><source>Waiting for the network: {names}</source><translation>Warten auf das Netz: {names}</translation></message>
<message><source>{name} and {more} more</source><translation>{name} und {more} weitere</translation></message>
<message><source>Export this chat</source><translation>Diesen Chat exportieren</translation></message>
<message><source>Export this message</source><translation>Diese Nachricht exportieren</translation></message>
<message><source>Laying out the pages</source><translation>Seiten werden gesetzt</translation></message>
<message><source>PDF (*.pdf)</source><translation>PDF (*.pdf)</translation></message>
<message><source>Preview: {title}</source><translation>Vorschau: {title}</translation></message>
<message><source>Print</source><translation>Drucken</translation></message>
<message><source>Printing</source><translation>Wird gedruckt</translation></message>
<message><source>The first {n} of {total} pages</source><translation>Die ersten {n} von {total} Seiten</translation></message>
<message><source>Web page (*.html)</source><translation>Webseite (*.html)</translation></message>
<message><source>All versions</source><translation>Alle Versionen</translation></message>
<message><source>Form</source><translation>Format</translation></message>
<message><source>Other versions of messages, and what follows them</source><translation>Andere Versionen von Nachrichten und was darauf folgt</translation></message>
<message><source>PDF file</source><translation>PDF-Datei</translation></message>
<message><source>Preview</source><translation>Vorschau</translation></message>
<message><source>Print or export this chat</source><translation>Diesen Chat drucken oder exportieren</translation></message>
<message><source>Print or export this message</source><translation>Diese Nachricht drucken oder exportieren</translation></message>
<message><source>Thoughts</source><translation>Gedanken</translation></message>
<message><source>Web page</source><translation>Webseite</translation></message>
<message><source>What the model thought before it answered</source><translation>Was das Modell vor der Antwort gedacht hat</translation></message>
<message><source>Page {number} of {count}</source><translation>Seite {number} von {count}</translation></message>
<message><source>Added to {name}</source><translation>Zu {name} hinzugefügt</translation></message>
<message><source>From project {name}: {parts}</source><translation>Aus Projekt {name}: {parts}</translation></message>
<message><source>Project {name}</source><translation>Projekt {name}</translation></message>
<message><source>as in the settings</source><translation>wie in den Einstellungen</translation></message>
<message><source>instructions</source><translation>Anweisungen</translation></message>
<message><source>no notes ({why})</source><translation>keine Notizen ({why})</translation></message>
<message><source>notes</source><translation>Notizen</translation></message>
<message><source>notes ({n} of {all} characters fit)</source><translation>Notizen ({n} von {all} Zeichen passen hinein)</translation></message>
<message><source>the loaded one</source><translation>das geladene</translation></message>
<message numerus="yes"><source>{n} folders of documents</source><translation><numerusform>{n} Dokumentordner</numerusform><numerusform>{n} Dokumentordner</numerusform></translation></message>
<message numerus="yes"><source>{n} tools</source><translation><numerusform>{n} Werkzeug</numerusform><numerusform>{n} Werkzeuge</numerusform></translation></message>
<message><source>A text file of yours that the model reads after the instructions.</source><translation>Eine Textdatei von Ihnen, die das Modell nach den Anweisungen liest.</translation></message>
<message><source>Calls that send or change something still ask you.</source><translation>Aufrufe, die etwas senden oder ändern, fragen Sie weiterhin.</translation></message>
<message><source>Chats without a choice of their own are sent to this server, with all that was said in them and the instructions and notes of the project.</source><translation>Chats ohne eigene Wahl werden an diesen Server gesendet, mit allem, was in ihnen gesagt wurde, und den Anweisungen und Notizen des Projekts.</translation></message>
<message><source>Choose a file…</source><translation>Datei wählen…</translation></message>
<message><source>Documents for these chats</source><translation>Dokumente für diese Chats</translation></message>
<message><source>File for the notes</source><translation>Datei für die Notizen</translation></message>
<message><source>First add a folder with the button of documents below the message field.</source><translation>Fügen Sie zuerst mit der Schaltfläche für Dokumente unter dem Nachrichtenfeld einen Ordner hinzu.</translation></message>
<message><source>Notes</source><translation>Notizen</translation></message>
<message><source>Nothing is written before you accept it.</source><translation>Nichts wird geschrieben, bevor Sie zustimmen.</translation></message>
<message><source>Opens the file in your editor</source><translation>Öffnet die Datei in Ihrem Editor</translation></message>
<message><source>Persona</source><translation>Persona</translation></message>
<message><source>Settings for all chats in this folder. What you choose in a chat itself comes first.</source><translation>Einstellungen für alle Chats in diesem Ordner. Was Sie in einem Chat selbst wählen, hat Vorrang.</translation></message>
<message><source>Text files (*.md *.txt)</source><translation>Textdateien (*.md *.txt)</translation></message>
<message><source>The model answers from these folders. They stay on this PC.</source><translation>Das Modell antwortet aus diesen Ordnern. Sie bleiben auf diesem PC.</translation></message>
<message><source>The model may propose notes</source><translation>Das Modell darf Notizen vorschlagen</translation></message>
<message><source>Tools for these chats</source><translation>Werkzeuge für diese Chats</translation></message>
<message><source>What the model reads before every chat of this project</source><translation>Was das Modell vor jedem Chat dieses Projekts liest</translation></message>
<message><source>no longer there</source><translation>nicht mehr vorhanden</translation></message>
<message><source>{name}, in {folder}</source><translation>{name}, in {folder}</translation></message>
<message><source>{n} characters. At most {most} fit.</source><translation>{n} Zeichen. Höchstens {most} passen hinein.</translation></message>
<message><source>Add to notes</source><translation>Zu den Notizen hinzufügen</translation></message>
<message><source>It is added at the end of {path}.</source><translation>Es wird am Ende von {path} hinzugefügt.</translation></message>
<message><source>The model reads them before this chat, after those of the project and the persona.</source><translation>Das Modell liest sie vor diesem Chat, nach denen des Projekts und der Persona.</translation></message>
<message><source>Built with</source><translation>Gebaut mit</translation></message>
<message><source>Chats are stored unencrypted in your own folder. “Data folder” in the settings opens it. Delete single chats in Hearth, or all that Hearth stores with “Delete everything…” in the settings.</source><translation>Chats liegen unverschlüsselt in Ihrem eigenen Ordner. „Datenordner“ in den Einstellungen öffnet ihn. Löschen Sie einzelne Chats in Hearth, oder alles, was Hearth speichert, mit „Alles löschen …“ in den Einstellungen.</translation></message>
<message><source>Hearth chats with language models on this PC, with an engine of its own that skips the neurons which do not fire. Where there is an NVIDIA GPU, it computes the busy neurons there and the others on the CPU at the same time.</source><translation>Hearth chattet mit Sprachmodellen auf diesem PC, mit einer eigenen Engine, die inaktive Neuronen überspringt. Wo es eine NVIDIA-GPU gibt, berechnet sie dort die eifrigen Neuronen und zugleich auf der CPU die übrigen.</translation></message>
<message><source>Hearth uses the network only when you search for or download a model, write to a server that you added, open a link, or look for updates.</source><translation>Hearth nutzt das Netz nur, wenn Sie ein Modell suchen oder herunterladen, an einen Server schreiben, den Sie hinzugefügt haben, einen Link öffnen oder nach Updates suchen.</translation></message>
<message><source>Hearth's own code is under the MIT licence. The starter model and the parts below are under their own.</source><translation>Der Code von Hearth steht unter der MIT-Lizenz. Das Startmodell und die Teile unten stehen unter ihren eigenen.</translation></message>
<message><source>It includes no text of its licence, {licence}.</source><translation>Es bringt keinen Text seiner Lizenz {licence} mit.</translation></message>
<message><source>Other programs on this PC can ask your model only while the local server is switched on, and only with its key.</source><translation>Andere Programme auf diesem PC können Ihr Modell nur fragen, solange Sie den lokalen Server eingeschaltet haben, und nur mit dessen Schlüssel.</translation></message>
<message><source>Part</source><translation>Teil</translation></message>
<message><source>Starter model</source><translation>Startmodell</translation></message>
<message><source>This text cannot be read: {path} ({why}). Install Hearth again.</source><translation>Dieser Text kann nicht gelesen werden: {path} ({why}). Installieren Sie Hearth neu.</translation></message>
<message><source>Version</source><translation>Version</translation></message>
<message><source>Version {version}</source><translation>Version {version}</translation></message>
<message><source>What you write, what is answered and what you attach stay on this PC. There is no account and no telemetry. Nothing is sent when Hearth starts, runs or crashes.</source><translation>Was Sie schreiben, die Antworten und Ihre Anhänge bleiben auf diesem PC. Es gibt kein Konto und keine Telemetrie. Wenn Hearth startet, läuft oder abstürzt, wird nichts gesendet.</translation></message>
<message><source>Another program or the system ended it, or it stopped answering.</source><translation>Es wurde von außen beendet oder antwortete nicht mehr.</translation></message>
<message><source>Hearth ended unexpectedly last time</source><translation>Hearth wurde beim letzten Mal unerwartet beendet</translation></message>
<message><source>Nothing was recorded.</source><translation>Es wurde nichts notiert.</translation></message>
<message><source>What is known</source><translation>Was darüber bekannt ist</translation></message>
<message><source>You can save a report and show it to others. It contains no text of yours, and nothing is sent.</source><translation>Sie können einen Bericht für die Fehlersuche speichern. Er enthält keinen Text von Ihnen, und nichts wird gesendet.</translation></message>
<message><source>Your chats are safe</source><translation>Ihre Chats sind sicher</translation></message>
<message><source>Choose what to delete. Hearth itself stays installed.</source><translation>Wählen Sie, was Sie löschen möchten. Hearth selbst bleibt installiert.</translation></message>
<message><source>Close Hearth</source><translation>Hearth schließen</translation></message>
<message><source>Delete this for good?</source><translation>Endgültig löschen?</translation></message>
<message><source>Delete what Hearth stores on this PC</source><translation>Löschen, was Hearth auf diesem PC speichert</translation></message>
<message><source>Delete {size} for good?</source><translation>{size} endgültig löschen?</translation></message>
<message><source>Delete {size}…</source><translation>{size} löschen …</translation></message>
<message><source>Delete…</source><translation>Löschen …</translation></message>
<message><source>Deleting</source><translation>Löschen</translation></message>
<message><source>Empty</source><translation>Leer</translation></message>
<message><source>Everything that Hearth stores on this PC is deleted.</source><translation>Alles, was Hearth auf diesem PC speichert, wird gelöscht.</translation></message>
<message><source>Hearth is closing, to delete this.</source><translation>Hearth schließt sich, um zu löschen.</translation></message>
<message><source>Hearth is ending what it was doing.</source><translation>Hearth beendet, was es gerade tat.</translation></message>
<message><source>Hearth stops what it is doing, deletes it, and starts again.</source><translation>Hearth beendet, was es gerade tut, löscht und startet neu.</translation></message>
<message><source>It cannot be undone.</source><translation>Das lässt sich nicht rückgängig machen.</translation></message>
<message><source>Less than 1 MB</source><translation>Weniger als 1 MB</translation></message>
<message><source>Not everything was deleted</source><translation>Nicht alles wurde gelöscht</translation></message>
<message><source>Start Hearth again</source><translation>Hearth neu starten</translation></message>
<message><source>The rest is still there.</source><translation>Der Rest ist noch da.</translation></message>
<message><source>This is deleted: {groups}.</source><translation>Gelöscht wird: {groups}.</translation></message>
<message><source>What is left is still there:</source><translation>Noch vorhanden ist:</translation></message>
<message numerus="yes"><source>and {n} more</source><translation><numerusform>und {n} weiteres</numerusform><numerusform>und {n} weitere</numerusform></translation></message>
<message><source>{size} deleted.</source><translation>{size} gelöscht.</translation></message>
<message><source>Connected now</source><translation>Jetzt verbunden</translation></message>
<message><source>Every program that talks to this server needs the new one.</source><translation>Jedes Programm, das mit diesem Server spricht, braucht den neuen.</translation></message>
<message><source>Hide the key</source><translation>Schlüssel ausblenden</translation></message>
<message numerus="yes"><source>None. {n} requests answered so far.</source><translation><numerusform>Keine. Bisher {n} Anfrage beantwortet.</numerusform><numerusform>Keine. Bisher {n} Anfragen beantwortet.</numerusform></translation></message>
<message><source>Off. No other program can use a model here.</source><translation>Aus. Kein anderes Programm kann hier ein Modell nutzen.</translation></message>
<message><source>On, answered by {model}, which {client} asked for.</source><translation>An. Es antwortet {model}, nach dem {client} gefragt hat.</translation></message>
<message><source>On, answered by {model}.</source><translation>Ein, {model} antwortet.</translation></message>
<message><source>On, but no model is loaded, so requests are refused.</source><translation>An, aber kein Modell ist geladen: Anfragen werden abgewiesen.</translation></message>
<message><source>On. No model is loaded; a request loads the one that it names.</source><translation>An. Kein Modell ist geladen; eine Anfrage lädt das, das sie nennt.</translation></message>
<message><source>Programs with the old key will be refused</source><translation>Programme mit dem alten Schlüssel werden danach abgewiesen</translation></message>
<message><source>Renew</source><translation>Erneuern</translation></message>
<message><source>Renew the key?</source><translation>Schlüssel erneuern?</translation></message>
<message><source>Show the key</source><translation>Schlüssel anzeigen</translation></message>
<message><source>Starting.</source><translation>Er wird eingeschaltet.</translation></message>
<message><source>Switched off</source><translation>Ausgeschaltet</translation></message>
<message><source>local server for other programs, openai api</source><translation>lokaler server für andere programme, openai api</translation></message>
<message><source>{client} waits</source><translation>{client} wartet</translation></message>
<message numerus="yes"><source>{client}: {n} tokens</source><translation><numerusform>{client}: {n} Token</numerusform><numerusform>{client}: {n} Token</numerusform></translation></message>
<message numerus="yes"><source>{n} requests were refused.</source><translation><numerusform>{n} Anfrage wurde abgewiesen.</numerusform><numerusform>{n} Anfragen wurden abgewiesen.</numerusform></translation></message>
<message><source>Address of SearXNG</source><translation>Adresse von SearXNG</translation></message>
<message><source>Key for Brave Search</source><translation>Schlüssel für Brave Search</translation></message>
<message><source>Paste the key here</source><translation>Schlüssel hier einfügen</translation></message>
<message><source>Remove key</source><translation>Schlüssel entfernen</translation></message>
<message><source>Searches are sent to this address only. It must allow the format JSON.</source><translation>Suchen gehen nur an diese Adresse. Sie muss das Format JSON zulassen.</translation></message>
<message><source>The key is stored in this system's keyring and sent only to Brave.</source><translation>Der Schlüssel liegt im Schlüsselbund des Systems und wird nur an Brave gesendet.</translation></message>
<message><source>The service that searches the web when a model asks for it.</source><translation>Der Dienst, der das Web durchsucht, wenn ein Modell danach fragt.</translation></message>
<message><source>Tools</source><translation>Werkzeuge</translation></message>
<message><source>Hearth tests each of its parts. This can take a few minutes. The report contains none of your text, and nothing is sent.</source><translation>Hearth testet jedes seiner Teile. Das kann einige Minuten dauern. Der Bericht enthält keinen Text von Ihnen, und nichts wird gesendet.</translation></message>
<message><source>Report</source><translation>Bericht</translation></message>
<message><source>Testing</source><translation>Test läuft</translation></message>
<message><source>The test could not be started.</source><translation>Der Test konnte nicht gestartet werden.</translation></message>
<message><source>The test ended before it was complete.</source><translation>Der Test endete, bevor er vollständig war.</translation></message>
<message><source>Copy: {what}</source><translation>Kopieren: {what}</translation></message>
<message><source>No program opened this folder. Copy its path instead.</source><translation>Kein Programm hat den Ordner geöffnet. Kopieren Sie stattdessen den Pfad.</translation></message>
<message><source>Open: {what}</source><translation>Öffnen: {what}</translation></message>
<message><source>Search settings</source><translation>Einstellungen durchsuchen</translation></message>
<message><source>Double-click for: {back}</source><translation>Doppelklick für: {back}</translation></message>
<message><source>Must be between {low} and {high}.</source><translation>Muss zwischen {low} und {high} liegen.</translation></message>
<message><source>no text</source><translation>kein Text</translation></message>
<message><source>off</source><translation>aus</translation></message>
<message><source>on</source><translation>an</translation></message>
<message><source>the first text</source><translation>der erste Text</translation></message>
<message><source>{title}: back to {value}</source><translation>{title}: zurück auf {value}</translation></message>
<message><source>“{typed}” is not a number.</source><translation>„{typed}“ ist keine Zahl.</translation></message>
<message><source>Data folder</source><translation>Datenordner</translation></message>
<message><source>Each part with its time, in a text without private content</source><translation>Jedes Teil mit seiner Zeit, als Text ohne Privates</translation></message>
<message><source>Folders that a chat can answer from</source><translation>Ordner, aus denen ein Chat antworten kann</translation></message>
<message><source>For models that ask for one</source><translation>Für Modelle, die eines verlangen</translation></message>
<message><source>Help</source><translation>Hilfe</translation></message>
<message><source>Models folder</source><translation>Modellordner</translation></message>
<message><source>Move…</source><translation>Verschieben …</translation></message>
<message><source>Newer versions of Hearth</source><translation>Neuere Versionen von Hearth</translation></message>
<message><source>No settings match “{typed}”.</source><translation>Keine Einstellung passt zu „{typed}“.</translation></message>
<message><source>Or parts of what Hearth stores on this PC</source><translation>Oder Teile dessen, was Hearth hier speichert</translation></message>
<message><source>Privacy and storage</source><translation>Datenschutz und Speicherort</translation></message>
<message><source>To show to others. Contains no chats and no file names.</source><translation>Zum Zeigen. Enthält keine Chats und keine Dateinamen.</translation></message>
<message><source>What Hearth did, on this PC only</source><translation>Was Hearth tat, nur auf diesem PC</translation></message>
<message><source>What leaves this PC, and what does not</source><translation>Was diesen PC verlässt und was nicht</translation></message>
<message><source>AS YOU APPROVED IT</source><translation>WIE SIE ES ZUGELASSEN HABEN</translation></message>
<message><source>Approve {tool}</source><translation>{tool} zulassen</translation></message>
<message><source>Approved</source><translation>Zugelassen</translation></message>
<message><source>Changed</source><translation>Geändert</translation></message>
<message><source>Definition of {tool}</source><translation>Definition von {tool}</translation></message>
<message><source>Gone</source><translation>Nicht mehr da</translation></message>
<message><source>Hide the definition of {tool}</source><translation>Definition von {tool} ausblenden</translation></message>
<message><source>It runs with your rights and is not confined: it can do whatever you can do on this PC.</source><translation>Es läuft mit Ihren Rechten und ist nicht eingeschränkt: Es kann alles, was Sie auf diesem PC können.</translation></message>
<message><source>It runs with your rights, confined by Landlock: it can change only its own folder and the folders that you name. It can use the network.</source><translation>Es läuft mit Ihren Rechten, eingeschränkt durch Landlock: Es kann nur seinen eigenen Ordner und die Ordner ändern, die Sie nennen. Es kann das Netz benutzen.</translation></message>
<message><source>NOW</source><translation>JETZT</translation></message>
<message><source>New</source><translation>Neu</translation></message>
<message><source>Show the definition of {tool}</source><translation>Definition von {tool} anzeigen</translation></message>
<message><source>The server has changed it since you approved it. It is off until you approve it again.</source><translation>Der Server hat es geändert, seit Sie es zugelassen haben. Es bleibt aus, bis Sie es wieder zulassen.</translation></message>
<message><source>The server's hints:</source><translation>Hinweise des Servers:</translation></message>
<message><source>You approved it, but the server no longer offers it.</source><translation>Sie haben es zugelassen, aber der Server bietet es nicht mehr an.</translation></message>
<message><source>Choose those to add. They stay off until you switch them on. A program runs with your rights; where it is not confined, it can do whatever you can do.</source><translation>Wählen Sie, welche hinzukommen. Sie bleiben aus, bis Sie sie einschalten. Ein Programm läuft mit Ihren Rechten; wo es nicht eingeschränkt ist, kann es alles, was Sie können.</translation></message>
<message><source>It holds no server that Hearth can use.</source><translation>Sie enthält keinen Server, den Hearth benutzen kann.</translation></message>
<message><source>MCP servers in {file}</source><translation>MCP-Server in {file}</translation></message>
<message><source>Not confined</source><translation>Nicht eingeschränkt</translation></message>
<message><source>Sends: {names}</source><translation>Sendet: {names}</translation></message>
<message><source>Sets: {names}</source><translation>Setzt: {names}</translation></message>
<message><source>These cannot be added:</source><translation>Diese können nicht hinzugefügt werden:</translation></message>
<message><source>A chat can call the tools that you approve, once you switch the server on in the settings.</source><translation>Ein Chat kann die Werkzeuge aufrufen, die Sie zulassen, sobald Sie den Server in den Einstellungen einschalten.</translation></message>
<message><source>A chat can call the tools that you approve.</source><translation>Ein Chat kann die Werkzeuge aufrufen, die Sie zulassen.</translation></message>
<message><source>A program that offers tools. Hearth starts it when one of them is called.</source><translation>Ein Programm, das Werkzeuge anbietet. Hearth startet es, wenn eines davon aufgerufen wird.</translation></message>
<message><source>A server that offers tools. What a chat sends to a tool goes to this address.</source><translation>Ein Server, der Werkzeuge anbietet. Was ein Chat an ein Werkzeug sendet, geht an diese Adresse.</translation></message>
<message><source>Allow</source><translation>Erlauben</translation></message>
<message><source>Arguments, one per line</source><translation>Argumente, eines je Zeile</translation></message>
<message><source>Asking for its tools</source><translation>Werkzeuge werden abgefragt</translation></message>
<message><source>Authorization: Bearer …</source><translation>Authorization: Bearer …</translation></message>
<message><source>Cancelled.</source><translation>Abgebrochen.</translation></message>
<message><source>Command</source><translation>Befehl</translation></message>
<message><source>Command line</source><translation>Befehlszeile</translation></message>
<message><source>Confine it</source><translation>Einschränken</translation></message>
<message><source>Folder that it may read and change</source><translation>Ordner, den es lesen und ändern darf</translation></message>
<message><source>Folders that it may read and change, one per line</source><translation>Ordner, die es lesen und ändern darf, einer je Zeile</translation></message>
<message><source>Headers, one per line</source><translation>Header, einer je Zeile</translation></message>
<message><source>Hearth starts it when you look at its tools, or when a chat calls one of them.</source><translation>Hearth startet es, wenn Sie seine Werkzeuge ansehen oder ein Chat eines davon aufruft.</translation></message>
<message><source>It is ended, and its approvals and its private folder are deleted. The program itself stays.</source><translation>Er wird beendet, und seine Zulassungen und sein privater Ordner werden gelöscht. Das Programm selbst bleibt.</translation></message>
<message><source>It offers no tools.</source><translation>Er bietet keine Werkzeuge an.</translation></message>
<message><source>Kind of server</source><translation>Art des Servers</translation></message>
<message><source>Landlock keeps it out of your other files. A server that needs Docker or a desktop cannot work this way.</source><translation>Landlock hält es von Ihren anderen Dateien fern. Ein Server, der Docker oder einen Desktop braucht, kann so nicht arbeiten.</translation></message>
<message><source>Last lines of its output</source><translation>Letzte Zeilen seiner Ausgabe</translation></message>
<message><source>Let Hearth start this program?</source><translation>Darf Hearth dieses Programm starten?</translation></message>
<message><source>Look at its tools</source><translation>Werkzeuge ansehen</translation></message>
<message><source>Program on this PC</source><translation>Programm auf diesem PC</translation></message>
<message><source>Settings of this server</source><translation>Einstellungen dieses Servers</translation></message>
<message><source>Starting it, and asking for its tools</source><translation>Er wird gestartet und nach seinen Werkzeugen gefragt</translation></message>
<message><source>This system cannot confine programs: it can do whatever you can do.</source><translation>Dieses System kann Programme nicht einschränken: Es kann alles, was Sie können.</translation></message>
<message><source>Values are stored in a file that only you can read.</source><translation>Die Werte werden in einer Datei gespeichert, die nur Sie lesen können.</translation></message>
<message><source>Variables, one NAME=value per line</source><translation>Variablen, je Zeile NAME=Wert</translation></message>
<message><source>Without one, it can change nothing but a folder of its own.</source><translation>Ohne einen kann es nur einen eigenen Ordner ändern.</translation></message>
<message><source>{name} is added, and off. Look at its tools, and approve those that chats may call.</source><translation>{name} ist hinzugefügt und ausgeschaltet. Sehen Sie sich die Werkzeuge an und lassen Sie die zu, die Chats aufrufen dürfen.</translation></message>
<message><source>{name} is there twice.</source><translation>{name} kommt zweimal vor.</translation></message>
<message><source>“{line}” has no {sign}.</source><translation>„{line}“ hat kein {sign}.</translation></message>
<message><source>Add…</source><translation>Hinzufügen…</translation></message>
<message><source>Import MCP servers</source><translation>MCP-Server importieren</translation></message>
<message><source>Import from a file…</source><translation>Aus einer Datei importieren…</translation></message>
<message><source>MCP servers</source><translation>MCP-Server</translation></message>
<message><source>No tool approved</source><translation>Kein Werkzeug zugelassen</translation></message>
<message><source>Programs and addresses that offer tools. A chat can call a tool after you approved it here and switched it on in the chat.</source><translation>Programme und Adressen, die Werkzeuge anbieten. Ein Chat kann ein Werkzeug aufrufen, nachdem Sie es hier zugelassen und im Chat eingeschaltet haben.</translation></message>
<message><source>Reads the servers of another program, such as mcp.json</source><translation>Liest die Server eines anderen Programms, etwa mcp.json</translation></message>
<message><source>Remove a server first</source><translation>Entfernen Sie zuerst einen Server</translation></message>
<message><source>Settings of other programs (*.json)</source><translation>Einstellungen anderer Programme (*.json)</translation></message>
<message><source>Tools changed since you approved them</source><translation>Werkzeuge haben sich seit Ihrer Zulassung geändert</translation></message>
<message numerus="yes"><source>{n} tools approved</source><translation><numerusform>{n} Werkzeug zugelassen</numerusform><numerusform>{n} Werkzeuge zugelassen</numerusform></translation></message>
<message><source>Check again</source><translation>Erneut suchen</translation></message>
<message><source>Check now</source><translation>Jetzt suchen</translation></message>
<message><source>Download {size}</source><translation>{size} laden</translation></message>
<message><source>Downloading version {version}…</source><translation>Version {version} wird heruntergeladen…</translation></message>
<message><source>Go back to {version}</source><translation>Zurück zu {version}</translation></message>
<message><source>Install and restart</source><translation>Installieren und neu starten</translation></message>
<message><source>Installing version {version}…</source><translation>Version {version} wird installiert…</translation></message>
<message><source>Looking for a newer version…</source><translation>Es wird nach einer neueren Version gesucht…</translation></message>
<message><source>Nothing is requested until you check.</source><translation>Erst wenn Sie suchen, wird etwas angefragt.</translation></message>
<message><source>Open the installer</source><translation>Installationsprogramm öffnen</translation></message>
<message><source>This build offers no updates. Get new versions where you got this one.</source><translation>Diese Ausgabe bietet keine Updates. Holen Sie neue Versionen dort, woher Sie diese haben.</translation></message>
<message><source>This is version {version}.</source><translation>Dies ist Version {version}.</translation></message>
<message><source>Version {version} is available; this is {own}.</source><translation>Version {version} ist verfügbar; dies ist {own}.</translation></message>
<message><source>Version {version} is available; this is {own}. Get it where you got this one.</source><translation>Version {version} ist verfügbar; dies ist {own}. Holen Sie sie dort, woher Sie diese haben.</translation></message>
<message><source>Version {version} is downloaded and verified. Version {own} stays installed, so that you can go back to it.</source><translation>Version {version} ist heruntergeladen und geprüft. Version {own} bleibt installiert, damit Sie zu ihr zurückkehren können.</translation></message>
<message><source>Version {version} is downloaded and verified. Your system's installer opens it; restart Hearth afterwards.</source><translation>Version {version} ist heruntergeladen und geprüft. Das Installationsprogramm Ihres Systems öffnet sie; starten Sie Hearth danach neu.</translation></message>
<message><source>Version {version} is the newest.</source><translation>Version {version} ist die neueste.</translation></message>
<message><source>{done} of {total} MB</source><translation>{done} von {total} MB</translation></message>
<message><source>Now on the CPU</source><translation>Jetzt auf der CPU</translation></message>
<message><source>Now on the GPU and the CPU</source><translation>Jetzt auf der GPU und der CPU</translation></message>
<message><source>Now on {card} and the CPU</source><translation>Jetzt auf {card} und der CPU</translation></message>
<message numerus="yes"><source>And {n} more chats</source><translation><numerusform>Und {n} weiterer Chat</numerusform><numerusform>Und {n} weitere Chats</numerusform></translation></message>
<message><source>Bin</source><translation>Papierkorb</translation></message>
<message numerus="yes"><source>Delete {n} chats for good?</source><translation><numerusform>{n} Chat endgültig löschen?</numerusform><numerusform>{n} Chats endgültig löschen?</numerusform></translation></message>
<message><source>Delete “{title}” for good</source><translation>„{title}“ endgültig löschen</translation></message>
<message><source>Delete “{title}” for good?</source><translation>„{title}“ endgültig löschen?</translation></message>
<message numerus="yes"><source>Deleted chats are kept for {n} days. Searches and exports leave them out.</source><translation><numerusform>Gelöschte Chats bleiben {n} Tag erhalten. Suche und Export lassen sie aus.</numerusform><numerusform>Gelöschte Chats bleiben {n} Tage erhalten. Suche und Export lassen sie aus.</numerusform></translation></message>
<message><source>Empty the bin</source><translation>Papierkorb leeren</translation></message>
<message><source>It cannot be restored afterwards.</source><translation>Danach ist er nicht wiederherzustellen.</translation></message>
<message><source>Restore</source><translation>Wiederherstellen</translation></message>
<message><source>Restore “{title}”</source><translation>„{title}“ wiederherstellen</translation></message>
<message><source>The bin is empty.</source><translation>Der Papierkorb ist leer.</translation></message>
<message><source>What is in the bin cannot be restored afterwards.</source><translation>Was im Papierkorb liegt, ist danach nicht wiederherzustellen.</translation></message>
<message numerus="yes"><source>{n} days left</source><translation><numerusform>Noch {n} Tag</numerusform><numerusform>Noch {n} Tage</numerusform></translation></message>
<message><source>Chats (*.json *.jsonl *.zip *.chat)</source><translation>Chats (*.json *.jsonl *.zip *.chat)</translation></message>
<message><source>Export all chats</source><translation>Alle Chats exportieren</translation></message>
<message><source>Folder for the exported chats</source><translation>Wo die Chats liegen sollen</translation></message>
<message><source>Folder of chats</source><translation>Ordner mit Chats</translation></message>
<message><source>Hearth chats</source><translation>Hearth-Chats</translation></message>
<message><source>Import cancelled. Nothing was imported.</source><translation>Import abgebrochen. Nichts wurde importiert.</translation></message>
<message><source>JSON, which Hearth can import (*.json)</source><translation>JSON, das Hearth importieren kann (*.json)</translation></message>
<message><source>Markdown (*.md)</source><translation>Markdown (*.md)</translation></message>
<message><source>Move</source><translation>Verschieben</translation></message>
<message><source>Move this chat to “{folder}”?</source><translation>Diesen Chat nach „{folder}“ verschieben?</translation></message>
<message><source>All chats</source><translation>Alle Chats</translation></message>
<message><source>Delete folder and chats</source><translation>Ordner und Chats löschen</translation></message>
<message><source>Export all as JSON</source><translation>Alle als JSON exportieren</translation></message>
<message><source>Export all as Markdown</source><translation>Alle als Markdown exportieren</translation></message>
<message><source>Export as JSON</source><translation>Als JSON exportieren</translation></message>
<message><source>Export as Markdown</source><translation>Als Markdown exportieren</translation></message>
<message><source>Move to a new folder</source><translation>In einen neuen Ordner verschieben</translation></message>
<message><source>Move to folder</source><translation>In Ordner verschieben</translation></message>
<message><source>New chat here</source><translation>Neuer Chat hier</translation></message>
<message><source>New folder</source><translation>Neuer Ordner</translation></message>
<message><source>Pin</source><translation>Anheften</translation></message>
<message><source>Print or export</source><translation>Drucken oder exportieren</translation></message>
<message><source>Remove folder, keep chats</source><translation>Ordner entfernen, Chats behalten</translation></message>
<message><source>Remove from folder</source><translation>Aus dem Ordner nehmen</translation></message>
<message><source>Unpin</source><translation>Lösen</translation></message>
<message><source>April</source><translation>April</translation></message>
<message><source>August</source><translation>August</translation></message>
<message><source>December</source><translation>Dezember</translation></message>
<message><source>February</source><translation>Februar</translation></message>
<message><source>Folders</source><translation>Ordner</translation></message>
<message><source>January</source><translation>Januar</translation></message>
<message><source>July</source><translation>Juli</translation></message>
<message><source>June</source><translation>Juni</translation></message>
<message><source>Last 7 days</source><translation>Letzte 7 Tage</translation></message>
<message><source>March</source><translation>März</translation></message>
<message><source>May</source><translation>Mai</translation></message>
<message><source>November</source><translation>November</translation></message>
<message><source>October</source><translation>Oktober</translation></message>
<message><source>Pinned</source><translation>Angeheftet</translation></message>
<message><source>September</source><translation>September</translation></message>
<message><source>Today</source><translation>Heute</translation></message>
<message><source>Yesterday</source><translation>Gestern</translation></message>
<message><source>{month} {year}</source><translation>{month} {year}</translation></message>
<message><source>{name}, folder, {chats}, closed</source><translation>{name}, Ordner, {chats}, geschlossen</translation></message>
<message><source>{name}, folder, {chats}, open</source><translation>{name}, Ordner, {chats}, geöffnet</translation></message>
<message><source>{title}, waiting for you</source><translation>{title}, wartet auf Sie</translation></message>
<message><source>{title}, writing</source><translation>{title}, wird geschrieben</translation></message>
<message><source>Folder menu</source><translation>Ordnermenü</translation></message>
<message><source>New name</source><translation>Neuer Name</translation></message>
<message><source>New title</source><translation>Neuer Titel</translation></message>
<message><source>Create</source><translation>Anlegen</translation></message>
<message><source>Name of the folder</source><translation>Name des Ordners</translation></message>
<message><source>New project</source><translation>Neues Projekt</translation></message>
<message><source>This folder exists.</source><translation>Diesen Ordner gibt es schon.</translation></message>
<message><source>This folder exists. The chat moves to it.</source><translation>Einen Ordner dieses Namens gibt es: Der Chat kommt hinein.</translation></message>
<message><source>Already here</source><translation>Schon da</translation></message>
<message><source>Cancel import</source><translation>Import abbrechen</translation></message>
<message><source>Choose a file</source><translation>Datei wählen</translation></message>
<message><source>Choose a folder</source><translation>Ordner wählen</translation></message>
<message><source>Choose the folder of its models, which also holds its chats.</source><translation>Wählen Sie den Ordner seiner Modelle; darin liegen auch die Chats.</translation></message>
<message><source>Choose the folder “.lmstudio/conversations” in your home folder.</source><translation>Wählen Sie den Ordner „.lmstudio/conversations“ in Ihrem Benutzerordner.</translation></message>
<message><source>Choose the folder “threads” in Jan's data folder.</source><translation>Wählen Sie den Ordner „threads“ in Jans Datenordner.</translation></message>
<message><source>Choose what the other program exported, or drop it on the list of chats. Nothing leaves this PC.</source><translation>Wählen Sie, was das andere Programm exportiert hat, oder ziehen Sie es auf die Liste der Chats. Nichts verlässt diesen PC.</translation></message>
<message><source>Continue in the background</source><translation>Im Hintergrund fortsetzen</translation></message>
<message><source>Importing chats</source><translation>Chats werden importiert</translation></message>
<message><source>In the bin</source><translation>Im Papierkorb</translation></message>
<message><source>Left out</source><translation>Weggelassen</translation></message>
<message><source>Menu of all chats, Export all as JSON. Choose the JSON file.</source><translation>Menü aller Chats, Alle als JSON exportieren. Wählen Sie die JSON-Datei.</translation></message>
<message><source>No new chats</source><translation>Keine neuen Chats</translation></message>
<message><source>Reading the file</source><translation>Die Datei wird gelesen</translation></message>
<message><source>Settings, Data controls, Export chats. Choose the JSON file.</source><translation>Settings, Data Controls, Export Chats. Wählen Sie die JSON-Datei.</translation></message>
<message><source>Settings, Data controls, Export data. Choose the ZIP file that you are sent.</source><translation>Einstellungen, Datenkontrolle, Daten exportieren. Wählen Sie die ZIP-Datei, die Sie erhalten.</translation></message>
<message><source>Settings, Privacy, Export data. Choose the ZIP file that you are sent.</source><translation>Einstellungen, Datenschutz, Daten exportieren. Wählen Sie die ZIP-Datei, die Sie erhalten.</translation></message>
<message><source>Skipped</source><translation>Übersprungen</translation></message>
<message><source>The file is cut off or damaged: chats after that place are missing. Export it again.</source><translation>Die Datei ist abgeschnitten oder beschädigt: Chats nach dieser Stelle fehlen. Exportieren Sie sie noch einmal.</translation></message>
<message><source>Undo import</source><translation>Import rückgängig machen</translation></message>
<message numerus="yes"><source>{n} chats imported from {programs}</source><translation><numerusform>{n} Chat aus {programs} importiert</numerusform><numerusform>{n} Chats aus {programs} importiert</numerusform></translation></message>
<message numerus="yes"><source>{n} chats so far</source><translation><numerusform>{n} Chat bisher</numerusform><numerusform>{n} Chats bisher</numerusform></translation></message>
<message numerus="yes"><source>{n} chats, which stay as they are</source><translation><numerusform>{n} Chat, der bleibt, wie er ist</numerusform><numerusform>{n} Chats, die bleiben, wie sie sind</numerusform></translation></message>
<message numerus="yes"><source>{n} chats. Restore them there.</source><translation><numerusform>{n} Chat. Stellen Sie ihn dort wieder her.</numerusform><numerusform>{n} Chats. Stellen Sie sie dort wieder her.</numerusform></translation></message>
<message numerus="yes"><source>{n} damaged</source><translation><numerusform>{n} beschädigter</numerusform><numerusform>{n} beschädigte</numerusform></translation></message>
<message numerus="yes"><source>{n} of an unknown version</source><translation><numerusform>{n} in unbekannter Version</numerusform><numerusform>{n} in unbekannter Version</numerusform></translation></message>
<message numerus="yes"><source>{n} other parts</source><translation><numerusform>{n} anderer Teil</numerusform><numerusform>{n} andere Teile</numerusform></translation></message>
<message numerus="yes"><source>{n} pictures</source><translation><numerusform>{n} Bild</numerusform><numerusform>{n} Bilder</numerusform></translation></message>
<message numerus="yes"><source>{n} recordings</source><translation><numerusform>{n} Aufnahme</numerusform><numerusform>{n} Aufnahmen</numerusform></translation></message>
<message numerus="yes"><source>{n} that are not chats</source><translation><numerusform>{n}, der kein Chat ist</numerusform><numerusform>{n}, die keine Chats sind</numerusform></translation></message>
<message numerus="yes"><source>{n} that are there twice</source><translation><numerusform>{n}, der doppelt vorkommt</numerusform><numerusform>{n}, die doppelt vorkommen</numerusform></translation></message>
<message numerus="yes"><source>{n} too large</source><translation><numerusform>{n} zu großer</numerusform><numerusform>{n} zu große</numerusform></translation></message>
<message numerus="yes"><source>{n} without messages</source><translation><numerusform>{n} ohne Nachrichten</numerusform><numerusform>{n} ohne Nachrichten</numerusform></translation></message>
<message><source>{parts}. Their places are marked.</source><translation>{parts}. Ihre Stellen sind markiert.</translation></message>
<message><source>Open the sidebar</source><translation>Seitenleiste öffnen</translation></message>
<message><source>Search</source><translation>Suchen</translation></message>
<message><source>Close the sidebar</source><translation>Seitenleiste schließen</translation></message>
<message><source>No chat mentions “{typed}”</source><translation>Kein Chat erwähnt „{typed}“</translation></message>
<message><source>Try fewer words.</source><translation>Nehmen Sie weniger Wörter.</translation></message>
<message><source>Your chats will appear here.</source><translation>Hier erscheinen Ihre Chats.</translation></message>
<message><source>Models, {figure}</source><translation>Modelle, {figure}</translation></message>
<message><source>Sidebar</source><translation>Seitenleiste</translation></message>
<message><source>Figures of this answer</source><translation>Zahlen zu dieser Antwort</translation></message>
<message><source>This answer, measured on this PC</source><translation>Diese Antwort, auf diesem PC gemessen</translation></message>
<message><source>Table in the answer</source><translation>Tabelle in der Antwort</translation></message>
<message><source>Sources</source><translation>Quellen</translation></message>
<message numerus="yes"><source>The whole of {n} documents went along</source><translation><numerusform>{n} Dokument ging als Ganzes mit</numerusform><numerusform>{n} Dokumente gingen als Ganzes mit</numerusform></translation></message>
<message numerus="yes"><source>{n} more documents</source><translation><numerusform>{n} weiteres Dokument</numerusform><numerusform>{n} weitere Dokumente</numerusform></translation></message>
<message numerus="yes"><source>{n} more that were found</source><translation><numerusform>{n} weitere gefunden</numerusform><numerusform>{n} weitere gefunden</numerusform></translation></message>
<message numerus="yes"><source>{n} sources that were found</source><translation><numerusform>{n} gefundene Quelle</numerusform><numerusform>{n} gefundene Quellen</numerusform></translation></message>
<message><source>Add to notes…</source><translation>Zu den Notizen hinzufügen…</translation></message>
<message><source>Show more</source><translation>Mehr anzeigen</translation></message>
<message><source>This answer</source><translation>Diese Antwort</translation></message>
<message><source>{share}% of this answer is shown. Copy and export include all of it.</source><translation>{share} % dieser Antwort werden angezeigt. Kopieren und Exportieren erfassen alles.</translation></message>
<message><source>Click the figure below the message to choose what happens when the context is full.</source><translation>Drücken Sie auf die Zahl unter der Nachricht, um zu wählen, was bei vollem Kontext geschieht.</translation></message>
<message numerus="yes"><source>Instead of {n} earlier messages, it reads this summary.</source><translation><numerusform>Statt {n} früheren Nachricht liest es diese Zusammenfassung.</numerusform><numerusform>Statt {n} früherer Nachrichten liest es diese Zusammenfassung.</numerusform></translation></message>
<message numerus="yes"><source>Left out: {n} messages, from “{first}” to “{last}”.</source><translation><numerusform>Weggelassen wurde {n} Nachricht, von „{first}“ bis „{last}“.</numerusform><numerusform>Weggelassen wurden {n} Nachrichten, von „{first}“ bis „{last}“.</numerusform></translation></message>
<message><source>Left out: “{first}”.</source><translation>Weggelassen wurde „{first}“.</translation></message>
<message><source>The chat is longer than what the model can read at once.</source><translation>Der Chat ist länger, als das Modell auf einmal lesen kann.</translation></message>
<message numerus="yes"><source>They stay here to read.</source><translation><numerusform>Sie bleibt hier lesbar.</numerusform><numerusform>Sie bleiben hier lesbar.</numerusform></translation></message>
<message><source>Use the original messages</source><translation>Ursprüngliche Nachrichten verwenden</translation></message>
<message><source>What the model reads</source><translation>Was das Modell liest</translation></message>
<message><source>Why is that?</source><translation>Warum ist das so?</translation></message>
<message numerus="yes"><source>{n} earlier messages are no longer in the context</source><translation><numerusform>{n} frühere Nachricht ist nicht mehr im Kontext</numerusform><numerusform>{n} frühere Nachrichten sind nicht mehr im Kontext</numerusform></translation></message>
<message numerus="yes"><source>{n} earlier messages are summarised</source><translation><numerusform>{n} frühere Nachricht ist zusammengefasst</numerusform><numerusform>{n} frühere Nachrichten sind zusammengefasst</numerusform></translation></message>
<message numerus="yes"><source>{n} messages after the first answer are no longer in the context</source><translation><numerusform>{n} Nachricht nach der ersten Antwort ist nicht mehr im Kontext</numerusform><numerusform>{n} Nachrichten nach der ersten Antwort sind nicht mehr im Kontext</numerusform></translation></message>
<message numerus="yes"><source>{n} messages were left out.</source><translation><numerusform>{n} Nachricht wurde weggelassen.</numerusform><numerusform>{n} Nachrichten wurden weggelassen.</numerusform></translation></message>
<message><source>Jump to end</source><translation>Zum Ende springen</translation></message>
<message><source>Next version</source><translation>Nächste Version</translation></message>
<message><source>Previous version</source><translation>Vorige Version</translation></message>
<message><source>Copy message</source><translation>Nachricht kopieren</translation></message>
<message><source>Delete with its answer</source><translation>Mit der Antwort löschen</translation></message>
<message><source>Edit</source><translation>Bearbeiten</translation></message>
<message><source>Edit message</source><translation>Nachricht bearbeiten</translation></message>
<message><source>Edit your message</source><translation>Ihre Nachricht bearbeiten</translation></message>
<message><source>More for this message</source><translation>Mehr zu dieser Nachricht</translation></message>
<message><source>The chat goes on from here in a new branch</source><translation>Der Chat geht von hier in einem neuen Zweig weiter</translation></message>
<message><source>You: {text}</source><translation>Sie: {text}</translation></message>
<message><source>Your message</source><translation>Ihre Nachricht</translation></message>
<message><source>Your message, changed</source><translation>Ihre Nachricht, geändert</translation></message>
<message><source>{share}% of this message is shown. Copy and export include all of it.</source><translation>{share} % dieser Nachricht werden angezeigt. Kopieren und Exportieren erfassen alles.</translation></message>
<message><source>Copy as Markdown</source><translation>Als Markdown kopieren</translation></message>
<message><source>Copy link</source><translation>Link kopieren</translation></message>
<message><source>Open link</source><translation>Link öffnen</translation></message>
<message><source>Select message</source><translation>Nachricht auswählen</translation></message>
<message><source>Continue this answer</source><translation>Diese Antwort weiterschreiben lassen</translation></message>
<message><source>More for this answer</source><translation>Mehr zu dieser Antwort</translation></message>
<message><source>Statistics: {words}</source><translation>Statistik: {words}</translation></message>
<message><source>Code</source><translation>Code</translation></message>
<message><source>Copy code</source><translation>Code kopieren</translation></message>
<message><source>Copy {language} code</source><translation>{language}-Code kopieren</translation></message>
<message><source>Let long lines scroll</source><translation>Lange Zeilen scrollen lassen</translation></message>
<message><source>Open in the browser, without network access</source><translation>Im Browser öffnen, ohne Netzzugriff</translation></message>
<message><source>Show fewer lines</source><translation>Weniger Zeilen anzeigen</translation></message>
<message><source>Show the code</source><translation>Code anzeigen</translation></message>
<message><source>Show the diagram</source><translation>Diagramm anzeigen</translation></message>
<message numerus="yes"><source>Show {n} lines</source><translation><numerusform>{n} Zeile anzeigen</numerusform><numerusform>{n} Zeilen anzeigen</numerusform></translation></message>
<message numerus="yes"><source>Show {n} more lines</source><translation><numerusform>{n} weitere Zeile anzeigen</numerusform><numerusform>{n} weitere Zeilen anzeigen</numerusform></translation></message>
<message><source>This diagram cannot be drawn. It may have an error.</source><translation>Dieses Diagramm lässt sich nicht zeichnen. Vielleicht enthält es einen Fehler.</translation></message>
<message><source>Wrap long lines</source><translation>Lange Zeilen umbrechen</translation></message>
<message><source>code</source><translation>Code</translation></message>
<message><source>{language} code</source><translation>{language}-Code</translation></message>
<message><source>Diagram</source><translation>Diagramm</translation></message>
<message numerus="yes"><source>Show {n} more rows</source><translation><numerusform>{n} weitere Zeile anzeigen</numerusform><numerusform>{n} weitere Zeilen anzeigen</numerusform></translation></message>
<message numerus="yes"><source>{n} rows are not shown. Copy includes them.</source><translation><numerusform>{n} Zeile wird nicht angezeigt. Kopieren erfasst sie.</numerusform><numerusform>{n} Zeilen werden nicht angezeigt. Kopieren erfasst sie.</numerusform></translation></message>
<message><source>Hide the thought</source><translation>Gedankengang ausblenden</translation></message>
<message><source>Show the thought</source><translation>Gedankengang anzeigen</translation></message>
<message><source>{share}% of this thought is shown. Export includes all of it.</source><translation>{share} % dieses Gedankens werden angezeigt. Der Export erfasst alles.</translation></message>
<message><source>Accept</source><translation>Annehmen</translation></message>
<message><source>Add this to the notes?</source><translation>Dies zu den Notizen hinzufügen?</translation></message>
<message><source>Allow once</source><translation>Einmal erlauben</translation></message>
<message><source>Allow {what} in this chat</source><translation>{what} in diesem Chat erlauben</translation></message>
<message><source>Allow {what} in this folder</source><translation>{what} in diesem Ordner erlauben</translation></message>
<message><source>Allow “{title}”?</source><translation>„{title}“ erlauben?</translation></message>
<message><source>Decline</source><translation>Ablehnen</translation></message>
<message><source>Don't add</source><translation>Nicht hinzufügen</translation></message>
<message><source>Done</source><translation>Fertig</translation></message>
<message><source>Failed</source><translation>Fehlgeschlagen</translation></message>
<message><source>Hearth cannot show the fields that this server asks for.</source><translation>Hearth kann die Felder nicht zeigen, nach denen dieser Server fragt.</translation></message>
<message><source>Hide the details</source><translation>Details ausblenden</translation></message>
<message><source>Not run</source><translation>Nicht ausgeführt</translation></message>
<message><source>Refuse</source><translation>Ablehnen</translation></message>
<message><source>Refused</source><translation>Abgelehnt</translation></message>
<message><source>Running</source><translation>Läuft</translation></message>
<message><source>Show the details</source><translation>Details anzeigen</translation></message>
<message><source>The model proposes a line at the end of {path}:</source><translation>Das Modell schlägt eine Zeile am Ende von {path} vor:</translation></message>
<message><source>The model wants to send this to the server {server}:</source><translation>Das Modell möchte dies an den Server {server} senden:</translation></message>
<message><source>The model wants to send this to {receiver}:</source><translation>Das Modell möchte dies an {receiver} senden:</translation></message>
<message><source>The server {server} asks you:</source><translation>Der Server {server} fragt Sie:</translation></message>
<message><source>This looks like a request for a password or key. Hearth cannot tell who receives it. Enter it only if you trust this server.</source><translation>Hier wird offenbar nach einem Passwort oder Schlüssel gefragt. Hearth weiß nicht, wer ihn bekommt. Geben Sie ihn nur ein, wenn Sie diesem Server vertrauen.</translation></message>
<message><source>Waiting for you</source><translation>Wartet auf Sie</translation></message>
<message><source>What the model asked for</source><translation>Was das Modell angefragt hat</translation></message>
<message><source>Your answer goes to this server. The model sees it only if the server tells it.</source><translation>Ihre Antwort geht an diesen Server. Das Modell sieht sie nur, wenn der Server sie weitergibt.</translation></message>
<message><source>Open Hearth</source><translation>Hearth öffnen</translation></message>
<message><source>Quit</source><translation>Beenden</translation></message>
<message><source>Copy details</source><translation>Details kopieren</translation></message>
<message><source>Discard</source><translation>Verwerfen</translation></message>
<message><source>Discard your changes?</source><translation>Änderungen verwerfen?</translation></message>
<message><source>Keep writing</source><translation>Weiterschreiben</translation></message>
<message><source>What you wrote in this dialog is not saved.</source><translation>Was Sie in diesem Dialog geschrieben haben, ist nicht gespeichert.</translation></message>
<message><source>Couldn't read the list of models.</source><translation>Die Liste der Modelle wurde nicht gelesen.</translation></message>
<message><source>No models are known</source><translation>Es sind keine Modelle bekannt</translation></message>
<message><source>No models match</source><translation>Kein Modell ist so</translation></message>
<message><source>No models on this PC yet</source><translation>Auf diesem PC ist noch kein Modell</translation></message>
<message><source>Reading the list of models</source><translation>Nachsehen, was es gibt</translation></message>
<message><source>Show all</source><translation>Alle anzeigen</translation></message>
<message><source>Show the recommended ones</source><translation>Empfohlene anzeigen</translation></message>
<message><source>The models to choose from, and those on this PC.</source><translation>Die Modelle zur Auswahl und die auf diesem PC.</translation></message>
<message><source>Those you download or add will be here.</source><translation>Was Sie herunterladen oder hinzufügen, steht dann hier.</translation></message>
<message><source>Try another filter, or any size and family.</source><translation>Nehmen Sie einen anderen Filter oder beliebige Größe und Familie.</translation></message>
<message><source>Getting ready, {done} of {total}</source><translation>Vorbereitung, {done} von {total}</translation></message>
<message><source>loaded in {time}</source><translation>in {time} geladen</translation></message>
<message><source>Cut</source><translation>Ausschneiden</translation></message>
<message><source>Paste</source><translation>Einfügen</translation></message>
<message><source>Redo</source><translation>Wiederholen</translation></message>
<message><source>Select all</source><translation>Alles auswählen</translation></message>
<message><source>Undo</source><translation>Rückgängig</translation></message>
<message><source>GPU memory: {ours} percent Hearth, {others} percent other programs</source><translation>GPU-Speicher: {ours} Prozent Hearth, {others} Prozent andere Programme</translation></message>
<message><source>Share on the GPU, {share} percent</source><translation>Anteil auf der GPU, {share} Prozent</translation></message>
<message><source>{name}, {done} percent</source><translation>{name}, {done} Prozent</translation></message>
<message><source>shown</source><translation>angezeigt</translation></message>
<message><source>{name} (optional)</source><translation>{name} (freiwillig)</translation></message>
<message><source>Close the search  (Esc)</source><translation>Suche schließen  (Esc)</translation></message>
<message><source>Search chats</source><translation>Chats durchsuchen</translation></message>
<message><source>Close Hearth and lose what is not saved?</source><translation>Hearth schließen und Ungespeichertes verlieren?</translation></message>
<message><source>Keep open</source><translation>Offen lassen</translation></message>
<message><source>A setting has a value that this model does not allow.</source><translation>Eine Einstellung hat einen Wert, den dieses Modell nicht nimmt.</translation></message>
<message><source>Another program is using the file of your chats.</source><translation>Ein anderes Programm verwendet die Datei Ihrer Chats.</translation></message>
<message><source>Choose automatically</source><translation>Automatisch wählen</translation></message>
<message><source>Couldn't ask the server</source><translation>Der Server wurde nicht gefragt</translation></message>
<message><source>Couldn't export the chats</source><translation>Die Chats wurden nicht exportiert</translation></message>
<message><source>Couldn't import the chats</source><translation>Die Chats wurden nicht importiert</translation></message>
<message><source>Couldn't load {model}</source><translation>{model} wurde nicht geladen</translation></message>
<message><source>Couldn't open your chats</source><translation>Ihre Chats wurden nicht geöffnet</translation></message>
<message><source>Couldn't save your settings</source><translation>Ihre Einstellungen wurden nicht gespeichert</translation></message>
<message><source>Couldn't start the engine</source><translation>Die Engine wurde nicht gestartet</translation></message>
<message><source>Enter a key</source><translation>Schlüssel eingeben</translation></message>
<message><source>Hearth uses its defaults in their place.</source><translation>Hearth nimmt stattdessen seine Vorgaben.</translation></message>
<message><source>Hearth {version} is available</source><translation>Hearth {version} ist da</translation></message>
<message><source>If this continues, install Hearth again.</source><translation>Bleibt es so, installieren Sie Hearth neu.</translation></message>
<message><source>It is restarting. Nothing in the chat is lost.</source><translation>Sie startet neu. Vom Chat geht nichts verloren.</translation></message>
<message><source>It stopped several times in a row, so Hearth does not restart it. Nothing in the chat is lost.</source><translation>Sie ist mehrmals hintereinander ausgefallen; Hearth startet sie nicht mehr neu. Vom Chat geht nichts verloren.</translation></message>
<message><source>It was kept next to a new one.</source><translation>Sie liegt neben einer neuen.</translation></message>
<message><source>Load the starter model</source><translation>Startmodell laden</translation></message>
<message><source>Models cannot be managed right now</source><translation>Modelle lassen sich gerade nicht verwalten</translation></message>
<message><source>New messages are kept in memory until they can be saved.</source><translation>Was inzwischen geschrieben wird, bleibt im Speicher und wird gesichert, sobald es geht.</translation></message>
<message><source>Nothing in it could be read.</source><translation>Nichts darin war lesbar.</translation></message>
<message><source>Nothing was imported.</source><translation>Nichts davon wurde übernommen.</translation></message>
<message><source>One of the model's files is damaged or incomplete. Download it again, or use another model.</source><translation>Eine Datei des Modells ist beschädigt oder unvollständig. Laden Sie sie neu, oder nehmen Sie ein anderes Modell.</translation></message>
<message><source>Open settings</source><translation>Einstellungen öffnen</translation></message>
<message><source>Open the folder</source><translation>Ordner öffnen</translation></message>
<message><source>Part of the engine does not run on this PC's CPU.</source><translation>Ein Teil der Engine läuft auf dem Prozessor dieses PCs nicht.</translation></message>
<message><source>Restart the engine</source><translation>Engine neu starten</translation></message>
<message><source>Send again</source><translation>Erneut senden</translation></message>
<message><source>Some of your chats could not be read</source><translation>Ein Teil Ihrer Chats wurde nicht gelesen</translation></message>
<message><source>Some of your settings could not be read</source><translation>Einige Ihrer Einstellungen wurden nicht gelesen</translation></message>
<message><source>Something did not work as it should. Your chats are safe.</source><translation>Etwas ging nicht, wie es sollte. Ihre Chats sind sicher.</translation></message>
<message><source>Something went wrong in Hearth</source><translation>Hearth fand einen eigenen Fehler</translation></message>
<message><source>Start a new chat</source><translation>Neuen Chat beginnen</translation></message>
<message><source>The GPU cannot be used on this PC.</source><translation>Die GPU kann auf diesem PC nicht verwendet werden.</translation></message>
<message><source>The GPU stopped working. The text so far is kept, and the model is being loaded again.</source><translation>Die GPU hat aufgehört zu arbeiten. Der bisherige Text bleibt erhalten, und das Modell wird neu geladen.</translation></message>
<message><source>The answer ends here; the text so far is kept. Your chats are safe.</source><translation>Die Antwort endet hier; der bisherige Text bleibt erhalten. Ihre Chats sind sicher.</translation></message>
<message><source>The damaged file is kept as {name}.</source><translation>Die beschädigte Datei bleibt als {name}.</translation></message>
<message><source>The disk is full</source><translation>Der Datenträger ist voll</translation></message>
<message><source>The disk is full, so they last only until Hearth is closed.</source><translation>Der Datenträger ist voll; sie gelten nur, bis Sie Hearth schließen.</translation></message>
<message><source>The disk is full.</source><translation>Der Datenträger ist voll.</translation></message>
<message><source>The disk is full: {size} is free.</source><translation>Der Datenträger ist voll: {size} sind frei.</translation></message>
<message><source>The engine could not do what was asked.</source><translation>Die Engine konnte nicht tun, was verlangt war.</translation></message>
<message><source>The engine keeps stopping</source><translation>Die Engine bleibt nicht am Laufen</translation></message>
<message><source>The engine stopped</source><translation>Die Engine hat aufgehört</translation></message>
<message><source>The engine stopped in the middle of it. The text so far is kept.</source><translation>Die Engine ist mittendrin ausgefallen. Der bisherige Text bleibt erhalten.</translation></message>
<message><source>The file cannot be read. Choose one on this PC that you are allowed to open.</source><translation>Die Datei kann nicht gelesen werden. Wählen Sie eine auf diesem PC, die Sie öffnen dürfen.</translation></message>
<message><source>The file cannot be written there. Choose another folder.</source><translation>Die Datei kann dort nicht geschrieben werden. Wählen Sie einen anderen Ordner.</translation></message>
<message><source>The file of your chats is damaged, and no new one can be written beside it.</source><translation>Die Datei Ihrer Chats ist beschädigt, und daneben kann keine neue geschrieben werden.</translation></message>
<message><source>The file of your chats was damaged</source><translation>Die Datei Ihrer Chats war beschädigt</translation></message>
<message><source>The folder of your chats cannot be written.</source><translation>In den Ordner Ihrer Chats kann nicht geschrieben werden.</translation></message>
<message><source>The folder {folder} cannot be written, so they last only until Hearth is closed.</source><translation>In den Ordner {folder} kann nicht geschrieben werden; sie gelten daher nur, bis Hearth geschlossen wird.</translation></message>
<message><source>The folder {folder} cannot be written.</source><translation>In den Ordner {folder} kann nicht geschrieben werden.</translation></message>
<message><source>The list of models on this PC cannot be used.</source><translation>Die Liste der Modelle auf diesem PC ist nicht nutzbar.</translation></message>
<message><source>The local server could not be switched on.</source><translation>Der lokale Server konnte nicht eingeschaltet werden.</translation></message>
<message><source>The local server is not on</source><translation>Der lokale Server ist nicht eingeschaltet</translation></message>
<message><source>The message is longer than what the model can see at once.</source><translation>Die Nachricht ist länger, als das Modell auf einmal sehen kann.</translation></message>
<message><source>The message was not answered</source><translation>Die Nachricht wurde nicht beantwortet</translation></message>
<message><source>The model could not be loaded. Your chats are safe.</source><translation>Das Modell konnte nicht geladen werden. Ihre Chats sind sicher.</translation></message>
<message><source>The model manager stopped several times in a row. You can keep chatting; nothing is lost.</source><translation>Die Modellverwaltung wurde mehrmals hintereinander beendet. Sie können weiter chatten; nichts ist verloren.</translation></message>
<message><source>The model's chat template, which lays a chat out for it, does not work.</source><translation>Die Chatvorlage des Modells, die ihm einen Chat aufbereitet, funktioniert nicht.</translation></message>
<message><source>The model's computation went wrong. If it happens again, its files are damaged.</source><translation>Die Berechnung des Modells ging schief. Geschieht es wieder, sind seine Dateien beschädigt.</translation></message>
<message><source>The model's header would take too much memory. Choose another file of it, or another model.</source><translation>Der Kopf des Modells würde zu viel Speicher brauchen. Wählen Sie eine andere Datei davon oder ein anderes Modell.</translation></message>
<message><source>The prepared data does not belong to this model. In the settings, let its neurons be chosen automatically.</source><translation>Was für dieses Modell vorbereitet wurde, passt nicht zu ihm. Lassen Sie seine Neuronen in den Einstellungen automatisch wählen.</translation></message>
<message><source>The server cannot be reached. The text so far is kept.</source><translation>Der Server ist nicht erreichbar. Der bisherige Text bleibt erhalten.</translation></message>
<message><source>The server did not answer properly. The text so far is kept.</source><translation>Der Server antwortet nicht, wie er sollte. Der bisherige Text bleibt erhalten.</translation></message>
<message><source>The server does not accept the key.</source><translation>Der Server nimmt den Schlüssel nicht an.</translation></message>
<message><source>The window and the engine have different versions. Install Hearth again.</source><translation>Fenster und Engine verstehen sich nicht: Sie haben verschiedene Versionen. Installieren Sie Hearth neu.</translation></message>
<message><source>Their file is a link to a file that does not exist. Connect that disk, or remove the link.</source><translation>Ihre Datei ist ein Verweis auf einen Ort, den es nicht gibt. Schließen Sie dieses Laufwerk an oder entfernen Sie den Verweis.</translation></message>
<message><source>Their file is damaged. Repairing copies everything readable into a new file and keeps the old one.</source><translation>Ihre Datei ist beschädigt. Reparieren kopiert alles Lesbare in eine neue Datei und behält die alte.</translation></message>
<message><source>There is not enough free memory. Close other programs, or give the model a smaller context.</source><translation>Es ist nicht genug Speicher frei. Schließen Sie andere Programme, oder geben Sie dem Modell einen kleineren Kontext.</translation></message>
<message><source>They were saved by a newer Hearth and stay untouched. Install the newer version to read them.</source><translation>Sie wurden von einem neueren Hearth gespeichert und bleiben unberührt. Installieren Sie die neuere Version, um sie zu lesen.</translation></message>
<message><source>This does not seem to be such a server. Check the address.</source><translation>Das scheint kein solcher Server zu sein. Prüfen Sie die Adresse.</translation></message>
<message><source>Use the CPU only</source><translation>Nur die CPU nutzen</translation></message>
<message><source>Use the copy from before</source><translation>Die Kopie von davor verwenden</translation></message>
<message><source>What you write now is lost when Hearth is closed.</source><translation>Was Sie jetzt schreiben, geht verloren, wenn Hearth geschlossen wird.</translation></message>
<message><source>Your chats are not saved right now</source><translation>Ihre Chats werden gerade nicht gespeichert</translation></message>
<message><source>Your chats cannot be saved</source><translation>Ihre Chats können nicht gespeichert werden</translation></message>
<message><source>{chats} with {messages} could be read.</source><translation>{chats} mit {messages} waren lesbar.</translation></message>
<message><source>{fact} The text so far is kept, and the model is being loaded again.</source><translation>{fact} Der bisherige Text bleibt erhalten, und das Modell wird neu geladen.</translation></message>
<message><source>{fact} The text so far is kept.</source><translation>{fact} Der bisherige Text bleibt erhalten.</translation></message>
<message><source>{model} does not fit right now</source><translation>{model} passt gerade nicht</translation></message>
<message><source>1 in 10 neurons works per word: fast once prepared for this PC.</source><translation>Je Wort arbeitet 1 von 10 Neuronen: vorbereitet schnell.</translation></message>
<message><source>128 experts, of which 8 work on a word: much knowledge, little work.</source><translation>128 Experten, davon 8 je Wort: viel Wissen, wenig Aufwand.</translation></message>
<message><source>A small DeepSeek of 2024: 6 of its 64 experts work on a word.</source><translation>Ein kleines DeepSeek von 2024: 6 seiner 64 Experten arbeiten an einem Wort.</translation></message>
<message><source>A strong all-round model for a GPU with 8 GB; thinks before it answers.</source><translation>Ein starkes Allround-Modell für eine GPU mit 8 GB; denkt vor der Antwort nach.</translation></message>
<message><source>A strong all-round model: reasoning, code, many languages.</source><translation>Starkes Allround-Modell: Logik, Code, viele Sprachen.</translation></message>
<message><source>Among the best for a PC, and fast; needs 70 GB of RAM and VRAM together.</source><translation>Eines der besten für einen PC, und schnell; braucht 70 GB RAM und VRAM zusammen.</translation></message>
<message><source>Among the best for a PC; slow unless the GPU is large.</source><translation>Eines der besten für einen PC; langsam ohne große GPU.</translation></message>
<message><source>Among the strongest that a GPU with 24 GB holds: reasoning, code, many languages.</source><translation>Eines der stärksten für eine GPU mit 24 GB: Denken, Code, viele Sprachen.</translation></message>
<message><source>An all-round chat model with a long context.</source><translation>Allround-Modell mit langem Kontext.</translation></message>
<message><source>As published, in 61 files, for your own conversion.</source><translation>Wie veröffentlicht, in 61 Dateien, zum eigenen Konvertieren.</translation></message>
<message><source>As published, with predictors; Hearth converts it.</source><translation>Wie veröffentlicht, mit Prädiktoren; Hearth konvertiert es.</translation></message>
<message><source>Careful answers in many languages, good at code.</source><translation>Sorgfältige Antworten in vielen Sprachen, gut in Code.</translation></message>
<message><source>Chinese and English; fits a GPU with 8 GB.</source><translation>Chinesisch und Englisch; passt in eine GPU mit 8 GB.</translation></message>
<message><source>Compact and good at maths and reasoning.</source><translation>Kompakt, gut in Mathematik und Logik.</translation></message>
<message><source>Continues texts; 1 in 20 neurons works per word. Asks you to accept terms.</source><translation>Setzt Texte fort; je Wort arbeitet 1 von 20 Neuronen. Mit Bedingungen.</translation></message>
<message><source>Continues texts; 1 in 9 neurons works per word.</source><translation>Setzt Texte fort; je Wort arbeitet 1 von 9 Neuronen.</translation></message>
<message><source>Continues texts; LLaMA 2 with ReLU: 1 in 3 neurons works per word.</source><translation>Setzt Texte fort; LLaMA 2 mit ReLU: je Wort arbeitet 1 von 3 Neuronen.</translation></message>
<message><source>Continues texts; large, but most of it can stay in RAM.</source><translation>Setzt Texte fort; groß, doch das meiste kann im RAM bleiben.</translation></message>
<message><source>Continues texts; made for research, 1 in 20 neurons works per word.</source><translation>Setzt Texte fort; für Forschung, je Wort arbeitet 1 von 20 Neuronen.</translation></message>
<message><source>Continues texts; over 1 in 4 neurons works per word.</source><translation>Setzt Texte fort; je Wort arbeitet gut 1 von 4 Neuronen.</translation></message>
<message><source>Continues texts; the model that Bamboo DPO was made from.</source><translation>Setzt Texte fort; Grundlage von Bamboo DPO.</translation></message>
<message><source>English; its training texts and code are open too.</source><translation>Englisch; auch Trainingstexte und Code sind offen.</translation></message>
<message><source>English; its training texts and code are open too; needs a GPU with 24 GB.</source><translation>Englisch; auch Trainingstexte und Code sind offen; braucht eine GPU mit 24 GB.</translation></message>
<message><source>European languages, tools and documents; fits a GPU with 12 GB.</source><translation>Europäische Sprachen, Werkzeuge, Dokumente; passt in eine GPU mit 12 GB.</translation></message>
<message><source>European languages, tools and documents; fits a GPU with 8 GB.</source><translation>Europäische Sprachen, Werkzeuge, Dokumente; passt in eine GPU mit 8 GB.</translation></message>
<message><source>Fast without a GPU: 4 of its 32 experts work on a word.</source><translation>Schnell ohne GPU: 4 seiner 32 Experten arbeiten an einem Wort.</translation></message>
<message><source>Fast without a GPU: 6 of its 64 experts work on a word.</source><translation>Schnell ohne GPU: 6 seiner 64 Experten arbeiten an einem Wort.</translation></message>
<message><source>Finds passages by their meaning, in many languages, fast on the CPU; not for chats.</source><translation>Findet Textstellen nach ihrer Bedeutung, in vielen Sprachen, schnell auf dem Prozessor; nicht für Chats.</translation></message>
<message><source>Finds passages of English documents by their meaning; not for chats.</source><translation>Findet Stellen englischer Dokumente nach ihrer Bedeutung; nicht für Chats.</translation></message>
<message><source>Finds passages of your documents by their meaning; not for chats.</source><translation>Findet Stellen in Ihren Dokumenten nach ihrem Sinn; nicht für Chats.</translation></message>
<message><source>Follows instructions and works with documents, in 12 languages.</source><translation>Befolgt Anweisungen und arbeitet mit Dokumenten, in 12 Sprachen.</translation></message>
<message><source>Follows instructions and works with documents; needs a GPU with 24 GB.</source><translation>Befolgt Anweisungen und arbeitet mit Dokumenten; braucht eine GPU mit 24 GB.</translation></message>
<message><source>For PCs without a GPU.</source><translation>Für PCs ohne GPU.</translation></message>
<message><source>For programming with tools; needs 56 GB of RAM and VRAM together.</source><translation>Zum Programmieren mit Werkzeugen; braucht 56 GB RAM und VRAM zusammen.</translation></message>
<message><source>For programming with tools; needs a GPU with 16 GB.</source><translation>Zum Programmieren mit Werkzeugen; braucht eine GPU mit 16 GB.</translation></message>
<message><source>For programming; only a tenth of it works on a word, so it is fast.</source><translation>Fürs Programmieren; je Wort arbeitet nur ein Zehntel, daher schnell.</translation></message>
<message><source>Good all-round chat; only 1 in 7 neurons works per word, so it is fast.</source><translation>Gutes Allround-Modell; je Wort arbeitet nur 1 von 7 Neuronen, daher schnell.</translation></message>
<message><source>Good answers for its size, many languages, strong at maths and code.</source><translation>Gut für seine Größe, viele Sprachen, stark in Mathematik und Code.</translation></message>
<message><source>Good at code, in English and Chinese; fits a GPU with 12 GB.</source><translation>Gut bei Code, auf Englisch und Chinesisch; passt auf eine GPU mit 12 GB.</translation></message>
<message><source>Knows more and stays fast without a GPU; needs 20 GB of RAM.</source><translation>Weiß mehr und bleibt ohne GPU schnell; braucht 20 GB RAM.</translation></message>
<message><source>Knows much and answers fast; needs 24 GB of RAM and VRAM together.</source><translation>Weiß viel und antwortet schnell; braucht 24 GB RAM und VRAM zusammen.</translation></message>
<message><source>Knows much, answers at once and fast; many languages.</source><translation>Weiß viel, antwortet sofort und schnell; viele Sprachen.</translation></message>
<message><source>Large and strong; needs 80 GB of RAM and VRAM together.</source><translation>Groß und stark; braucht 80 GB RAM und VRAM zusammen.</translation></message>
<message><source>Large, answers at once and fast; needs 56 GB of RAM and VRAM together.</source><translation>Groß, antwortet sofort und schnell; braucht 56 GB RAM und VRAM zusammen.</translation></message>
<message><source>Large, strong at code and reasoning; needs 80 GB of RAM and VRAM together.</source><translation>Groß, stark bei Code und Logik; braucht 80 GB RAM und VRAM zusammen.</translation></message>
<message><source>Long documents and tools; 10 of its 72 experts work on a word.</source><translation>Lange Dokumente und Werkzeuge; 10 seiner 72 Experten arbeiten an einem Wort.</translation></message>
<message><source>Many languages: 2 of its 16 experts work on a word.</source><translation>Viele Sprachen: 2 seiner 16 Experten arbeiten an einem Wort.</translation></message>
<message><source>More knowledge than 7B; needs a GPU with 12 GB.</source><translation>Mehr Wissen als 7B; braucht eine GPU mit 12 GB.</translation></message>
<message><source>More knowledge than 8B; fits a GPU with 12 GB.</source><translation>Mehr Wissen als 8B; passt auf eine GPU mit 12 GB.</translation></message>
<message><source>Reasoning over long texts.</source><translation>Schlussfolgern über lange Texte.</translation></message>
<message><source>Reasons about very long texts; quick only on a GPU with 32 GB.</source><translation>Denkt über sehr lange Texte nach; schnell nur auf einer GPU mit 32 GB.</translation></message>
<message><source>Reasons well and answers fast: 4 of its 32 experts work on a word.</source><translation>Denkt gut nach, antwortet schnell: 4 von 32 Experten arbeiten je Wort.</translation></message>
<message><source>Reasons well over long texts; 6 of its 128 experts work on a word.</source><translation>Denkt gut über lange Texte nach; 6 seiner 128 Experten arbeiten an einem Wort.</translation></message>
<message><source>Six European languages, long texts; thinks first if you like.</source><translation>Sechs europäische Sprachen, lange Texte; denkt auf Wunsch erst nach.</translation></message>
<message><source>Small and able; many languages, long texts.</source><translation>Klein und fähig; viele Sprachen, lange Texte.</translation></message>
<message><source>Small and fast, for any PC.</source><translation>Klein und schnell, für jeden PC.</translation></message>
<message><source>Small and quick; good for short questions.</source><translation>Klein und schnell; gut für kurze Fragen.</translation></message>
<message><source>Small and quick; short questions and texts.</source><translation>Klein und schnell; für kurze Fragen und Texte.</translation></message>
<message><source>Small, English, trained on openly documented texts.</source><translation>Klein, Englisch, mit offen dokumentierten Texten trainiert.</translation></message>
<message><source>Small, for long documents.</source><translation>Klein, für lange Dokumente.</translation></message>
<message><source>Small, many languages; runs well on any PC.</source><translation>Klein, viele Sprachen; läuft gut auf jedem PC.</translation></message>
<message><source>Small, with European languages.</source><translation>Klein, mit europäischen Sprachen.</translation></message>
<message><source>Small; Korean, English and Spanish. Not for commercial use.</source><translation>Klein; Koreanisch, Englisch und Spanisch. Nicht für gewerbliche Nutzung.</translation></message>
<message><source>Small; fast without a GPU too.</source><translation>Klein; auch ohne GPU schnell.</translation></message>
<message><source>Strong all-round model with European languages; needs a GPU with 16 GB.</source><translation>Starkes Allround-Modell, europäische Sprachen; braucht eine GPU mit 16 GB.</translation></message>
<message><source>Strong at code and long answers; needs a GPU with 24 GB.</source><translation>Stark bei Code und langen Antworten; braucht eine GPU mit 24 GB.</translation></message>
<message><source>Strong at code and long tasks; fits a GPU with 24 GB.</source><translation>Stark bei Code und langen Aufgaben; passt in eine GPU mit 24 GB.</translation></message>
<message><source>Strong at code and tools; fast, because only 4 of its 64 experts work on each word.</source><translation>Stark bei Code und Werkzeugen; schnell, weil nur 4 von 64 Experten an einem Wort arbeiten.</translation></message>
<message><source>Strong at reasoning and code; needs a GPU with 24 GB.</source><translation>Stark in Logik und Code; braucht eine GPU mit 24 GB.</translation></message>
<message><source>The base model in full precision.</source><translation>Das Basismodell in voller Genauigkeit.</translation></message>
<message><source>The largest Gemma 3; needs a GPU with 24 GB.</source><translation>Das größte Gemma 3; braucht eine GPU mit 24 GB.</translation></message>
<message><source>The largest Gemma 4, well written; needs a GPU with 24 GB.</source><translation>Das größte Gemma 4, schreibt gut; braucht eine GPU mit 24 GB.</translation></message>
<message><source>The newer Qwen3 4B: answers at once, many languages, long texts.</source><translation>Das neuere Qwen3 4B: antwortet sofort, viele Sprachen, lange Texte.</translation></message>
<message><source>The same in full precision: slower, hardly better.</source><translation>Dasselbe in voller Genauigkeit: langsamer, kaum besser.</translation></message>
<message><source>The smallest; to try things out, not to rely on.</source><translation>Das kleinste; zum Ausprobieren, nicht verlässlich.</translation></message>
<message><source>The strongest dense Qwen3; needs a GPU with 24 GB.</source><translation>Das stärkste dichte Qwen3; braucht eine GPU mit 24 GB.</translation></message>
<message><source>Thinks at length before it answers: for hard questions.</source><translation>Denkt lange nach, bevor es antwortet: für schwere Fragen.</translation></message>
<message><source>Thinks at length before it answers; strong at maths for its size.</source><translation>Denkt lange nach, bevor es antwortet; für seine Größe stark in Mathematik.</translation></message>
<message><source>Tiny and quick, many languages; thinks before it answers.</source><translation>Winzig und schnell, viele Sprachen; denkt vor der Antwort nach.</translation></message>
<message><source>Tiny and quick; short questions and summaries.</source><translation>Winzig und schnell; für kurze Fragen und Zusammenfassungen.</translation></message>
<message><source>Tiny, many languages; runs on any PC.</source><translation>Winzig, viele Sprachen; läuft auf jedem PC.</translation></message>
<message><source>Tiny; short texts in Chinese and English.</source><translation>Winzig; kurze Texte auf Chinesisch und Englisch.</translation></message>
<message><source>Translates between 33 languages; small and fast.</source><translation>Übersetzt zwischen 33 Sprachen; klein und schnell.</translation></message>
<message><source>Very fast, without a GPU too.</source><translation>Sehr schnell, auch ohne GPU.</translation></message>
<message><source>Very large, for code and long tasks; needs 150 GB of RAM and VRAM together.</source><translation>Sehr groß, für Code und lange Aufgaben; braucht 150 GB RAM und VRAM zusammen.</translation></message>
<message><source>Very large; needs 80 GB of RAM and GPU memory together.</source><translation>Sehr groß; braucht 80 GB RAM und GPU-Speicher zusammen.</translation></message>
<message><source>Very small and very fast.</source><translation>Sehr klein und sehr schnell.</translation></message>
<message><source>Very small, English; runs on anything.</source><translation>Sehr klein, Englisch; läuft überall.</translation></message>
<message><source>Very small: for simple tasks and for trying things out.</source><translation>Sehr klein: für einfache Aufgaben und zum Ausprobieren.</translation></message>
<message><source>Well-written answers in many languages on almost any PC.</source><translation>Gut geschriebene Antworten in vielen Sprachen auf fast jedem PC.</translation></message>
<message><source>Well-written answers in many languages; fits a GPU with 12 GB.</source><translation>Gut geschriebene Antworten in vielen Sprachen; passt auf eine GPU mit 12 GB.</translation></message>
<message><source>Well-written answers on a small PC.</source><translation>Gut geschriebene Antworten auf einem kleinen PC.</translation></message>
<message><source>Well-written answers, fast: 8 of its 128 experts work on a word.</source><translation>Gut geschriebene Antworten, schnell: 8 von 128 Experten arbeiten an einem Wort.</translation></message>
<message><source>Well-written answers; short context.</source><translation>Gut geschriebene Antworten; kurzer Kontext.</translation></message>
</context>
</TS>
