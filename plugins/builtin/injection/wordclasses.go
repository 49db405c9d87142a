package injection

// wordClasses are the classes of words that rules name in capitals. Case and accents of the words
// do not matter. The words are English, German, French, Spanish, Italian, Portuguese, Russian,
// Chinese and Japanese.
var wordClasses = map[string]string{
	"IGNORE": `
		disobey ignore disregard forget neglect ignoriere ignorieren ignorier vergiss
		vergesst vergessen missachte missachten ignorez ignorer oublie oubliez oublier ignora
		ignoren ignorar olvida olvide olvidar olviden descarta dimentica esqueça desconsidere
		игнорируй игнорируйте игнорировать забудь забудьте проигнорируй отбрось 忽略 无视 忽视 忘记 忘掉
		無視 忽略掉 不要理会 不理会 忘れ 忘れて 無視して`,
	"IGNOREFOREIGN": `
		ignoriere ignorieren ignorier vergiss
		vergesst vergessen missachte missachten ignorez ignorer oublie oubliez oublier ignora
		ignoren ignorar olvida olvide olvidar olviden descarta dimentica esqueça desconsidere
		игнорируй игнорируйте игнорировать забудь забудьте проигнорируй отбрось 忽略 无视 忽视 忘记 忘掉
		無視 忽略掉 不要理会 不理会 忘れ 忘れて 無視して`,
	"OVERRIDE": `
		drop discount override overrides overriding overrule supersede supersedes outrank outranks
		bypass bypassing discard abandon dismiss`,
	"PRIOR": `
		alten anciennes antiguas старые previous previously prior above earlier preceding
		foregoing original initial existing former past vorherigen vorherige vorheriger
		bisherigen bisherige obigen früheren vorigen précédentes précédents précédente
		antérieures antérieurs dessus anteriores previas previos anterior previa precedenti
		precedente предыдущие предыдущих прежние прежних прошлые вышеуказанные ранее 之前 以前 以上 上面
		先前 此前 前面 上述 これまで 以前の 上記 前の 今まで`,
	"THAT": `this that these those the your my its`,
	"INSTR": `
		instructions guidelines directives programming anweisungen anweisung instruktionen
		befehle vorgaben
		consignes consigne directives instrucciones indicaciones órdenes istruzioni instruções
		инструкции инструкций инструкцию указания указаний команды 指令 指示 提示词 提示 命令 说明 设定 设置
		プロンプト`,
	"ORDER": `instruction prompt prompts guideline directive directions orders`,
	"RULES": `
		norms principles ethics regulations tus reglas regeln consignes rules rule restrictions
		restriction constraints policies policy safeguards context commands command training
		limitations regeln règles reglas regole regras правила правил ограничения 规则 限制 规定 ルール
		制限 規則`,
	"SAFETY": `
		safety ethical ethics moderation guardrail guardrails moral content safeguard`,
	"GUARDS": `
		filters filter protocols protocol guidelines guideline restrictions checks measures
		policies policy rules guardrails instructions limits limitations`,
	"NOT": `
		not never don't dont mustn't shouldn't cannot can't refrain avoid nie nicht nichts
		niemals ne n'en jamais nunca non não не никогда 不要 不得 别 切勿 勿`,
	"TELL": `
		tell telling inform informing notify notifying alert alerting warn disclose reveal
		explain acknowledge informieren informiere sagen sag sage erzähle erzähl dis dites dire
		informer prévenir avertir digas diga decir informes informar avises dire informare conte
		informe говори сообщай говорите рассказывай сообщать 告诉 告知 透露 通知`,
	"MENTION": `mention show say display report describe discuss`,
	"USER": `
		user users human humans customer developer maintainers owner author benutzer nutzer
		anwender benutzers utilisateur utilisateurs usuario usuarios usuário utente пользователю
		пользователя пользователь 用户 使用者 ユーザー ユーザ`,
	"SECRETLY": `
		secretly covertly discreetly surreptitiously stealthily heimlich secrètement
		secretamente discretamente тайно 秘密地 偷偷 悄悄 こっそり`,
	"SILENTLY": `silently quietly invisibly`,
	"DO": `
		send forward upload copy include add append call execute run exfiltrate read transmit
		post email bcc gather collect delete fetch invoke retrieve submit wants pass attach
		share put insert`,
	"SEND": `
		zip attach publish upload push dispatch relay beam send sends sending upload uploads
		forward transmit exfiltrate email post submit leak deliver share mail schicke sende
		senden schicken leite weiterleiten übermittle envoie envoyez envoyer transmets envía
		envia envíe enviar manda invia envie отправь отправьте пришли перешли 发送 发给 上传 转发 送信
		送信して 送って`,
	"READ": `
		zip attach grab look take hand pull obtain acquire steal fetch read open access cat load
		get fetch include paste copy retrieve extract find gather collect dump print provide
		supply commit execute append pass lies lese öffne lis lisez lire lee lea leer 读取 打开 読み
		прочитай`,
	"SECRETFILE": `
		gitconfig .gitconfig .vault-token credentials.json secrets.json known_hosts .azure
		.gcloud .terraform .ssh id_rsa id_ed25519 id_ecdsa .aws .npmrc .netrc .kube .docker
		.gnupg .pgpass .bash_history .zsh_history mcp.json .cursor claude_desktop_config
		authorized_keys wallet.dat keychain .pypirc hosts.yml login.keychain`,
	"KEYFILE": `
		id_rsa id_ed25519 id_ecdsa .aws .netrc .pgpass .bash_history .zsh_history wallet.dat
		.git-credentials .vault-token .gnupg .kube .pypirc`,
	"ENVFILE": `.env env environ`,
	"SECRETS": `
		password passwords credentials credential secrets secret api_key apikey keys key tokens
		token cookies cookie seed passphrase private ssh wallet pin passwort passwörter
		passwörtern mot passe contraseña contraseñas senha senhas пароли пароль 密码 密钥 パスワード 秘密鍵`,
	"PERSONAL": `
		conversation conversations history inbox mailbox chat messages message transcript
		contacts emails mails e-mails documents files calendar invoices records list report`,
	"SYSTEMPROMPT": `
		системный системные 系统提示 系统提示词 初始提示 システムプロンプト`,
	"SYSTEM": `
		system initial hidden original secret developer confidential internal underlying
		geheimen versteckten système sistema системные 系统 初始`,
	"REVEAL": `
		reveal print repeat output leak dump show tell give recite expose echo write return
		zeige zeig nenne gib affiche affichez montre muestra muéstrame revela mostra mostre
		выведи покажи 输出 显示 告诉 透露 泄露 表示 表示して 教えて`,
	"AI": `
		chatbots robot robots bots automated ai ais llm llms assistant assistants chatbot
		copilot claude chatgpt gpt gemini agent agents model models bot ki assistent`,
	"AINAME": `
		chatbots copilots robot robots ais ai llm llms assistant chatbot copilot claude chatgpt
		gpt gemini`,
	"PERSONA": `
		dan jailbroken jailbreak unrestricted unfiltered uncensored amoral evil stan
		omnipotent lawless administrateur administrador
		amministratore администратор 管理员`,
	"LIMITS": `
		restrictions restriction limitations limits filters filter censorship guardrails
		boundaries constraints rules morals ethics refusal policy policies guidelines
		einschränkungen beschränkungen restrictions restriction limites restricciones
		restrizioni restrições ограничений 限制 约束 制限`,
	"WITHOUT": `
		zero lacks without no ignoring beyond ohne sans sin senza sem без 没有 沒有 无 無い のない`,
	"NOW":        `now jetzt maintenant désormais ahora adesso agora теперь 现在 今から`,
	"YOUAREPRON": `you you're youre u du tu vous ты вы 你 您 你们`,
	"ARE":        `are bist seid es êtes eres sei é 是`,
	"NEW": `
		new updated revised real actual true latest neue nouvelle nouvelles nuevas nuevos новые
		新的 新しい`,
	"ATTACK": `
		attack attacks attacker attackers injection injections jailbreak jailbreaks malicious
		owasp adversary adversarial cve vulnerability exploit poisoning poisoned threat threats
		hijacking mitigation mitigations angriff angreifer`,
	"SUBJECT": `
		agents models llms assistants chatbots claude chatgpt gpt gemini copilot ai it they people
		users often sometimes eventually may
		might will would could can cannot safely`,
	"WISH": `free able tend tends likely want wants wish prefer choose`,
	"ABOUT": `
		phrase phrases example examples payload payloads detect detects detected detection
		filter variants patterns regex string test such like`,
}
