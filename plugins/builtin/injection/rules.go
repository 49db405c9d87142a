package injection

// phrase is a rule about words. Its pattern is a sequence of elements that are separated by blanks.
// An element is a word, a class of words in capitals (see wordClasses), one of the marks URL, EMAIL
// and PICTURE, or several of these with "|" between them. "~n" allows up to n other words before
// the next element. A pattern that begins with "!" does not match after a negation.
type phrase struct {
	family     family
	name       string
	content    int // the score in content
	definition int // the score in definitions and instructions
	pattern    string
}

// phrases are the rules about words. Phrases with the same family and name are one rule.
var phrases = []phrase{
	// override: earlier instructions no longer apply
	{familyOverride, "ignore-previous", 10, 10, "!IGNORE ~3 PRIOR ~3 INSTR"},
	{familyOverride, "ignore-previous", 10, 10, "!PRIOR ~3 INSTR ~3 IGNOREFOREIGN"},
	{familyOverride, "ignore-previous", 8, 6,
		"PRIOR ~1 instructions|guidelines ~3 are|is|be ~2 ignored|disregarded|" +
			"forgotten"},
	{familyOverride, "ignore-previous", 4, 5, "!PRIOR ~3 INSTR ~3 ignore|disregard|forget"},
	{familyOverride, "ignore-previous", 10, 10, "!IGNORE ~4 INSTR ~2 PRIOR"},
	{familyOverride, "ignore-previous", 6, 5, "!OVERRIDE ~3 PRIOR ~3 INSTR"},
	{familyOverride, "ignore-previous", 5, 4, "!OVERRIDE ~4 INSTR ~2 PRIOR"},
	{familyOverride, "ignore-previous", 7, 5, "!IGNORE ~3 PRIOR ~1 ORDER"},
	{familyOverride, "ignore-previous", 5, 4, "!OVERRIDE ~3 PRIOR ~1 ORDER"},
	{familyOverride, "ignore-previous", 5, 5, "!IGNORE|OVERRIDE ~4 ORDER ~2 PRIOR"},
	{familyOverride, "ignore-previous", 5, 4, "!IGNORE ~3 PRIOR ~2 RULES"},
	{familyOverride, "ignore-previous", 4, 4, "!IGNORE ~1 RULES ~1 PRIOR"},
	{familyOverride, "ignore-previous", 6, 6,
		"!PRIOR ~3 RULES ~3 IGNORE|void|outdated|lifted|suspended|invalid"},
	{familyOverride, "ignore-previous", 7, 5,
		"earlier|previous|prior ~2 restrictions|instructions ~3 void|lifted|suspended|cancelled"},
	{familyOverride, "ignore-previous", 5, 5,
		"earlier|previous|prior ~2 restrictions|rules|instructions ~3 " +
			"void|lifted|suspended|apply|changed|cancelled"},
	{familyOverride, "ignore-previous", 8, 8, "cuenta|compte|внимания ~4 PRIOR ~3 INSTR|RULES"},
	{familyOverride, "ignore-previous", 8, 8, "haz ~1 caso omiso"},
	{familyOverride, "ignore-previous", 8, 8, "ne ~1 tenez|tiens pas compte"},
	{familyOverride, "ignore-previous", 8, 8,
		"beachte|befolge ~4 PRIOR|alle ~2 INSTR|RULES|regeln ~2 nicht"},
	{familyOverride, "ignore-previous", 7, 5,
		"PRIOR ~2 instructions ~3 cancelled|canceled|void|changed"},
	{familyOverride, "ignore-previous", 4, 3,
		"PRIOR ~2 task|request ~3 cancelled|canceled|void|changed"},
	{familyOverride, "ignore-all", 8, 6,
		"!IGNORE ~1 alle|toutes|todas|所有|全部 ~1 INSTR ~3 from|given|received|" +
			"above|except|before|and|you"},
	{familyOverride, "ignore-all", 8, 6,
		"!ignore|disregard|forget ~1 all|every ~1 instructions|guidelines ~3 " +
			"given|received|above|before|and|you"},
	{familyOverride, "ignore-all", 7, 6,
		"!IGNORE ~0 alle|toutes|todas|所有|全部|すべて ~2 safety|instructions"},
	{familyOverride, "ignore-all", 7, 6,
		"!IGNORE ~0 all ~0 other|previous|safety ~1 instructions|guidelines"},
	{familyOverride, "ignore-all", 3, 3, "!IGNORE ~0 all ~2 other|previous|safety"},
	{familyOverride, "ignore-your", 8, 8, "!IGNOREFOREIGN|ignore ~1 deine|tes|vos|tus ~3 INSTR"},
	{familyOverride, "ignore-your", 8, 6, "!IGNORE ~1 your|my ~3 INSTR|programming|training"},
	{familyOverride, "ignore-your", 5, 4,
		"!IGNORE|OVERRIDE ~1 your|my|deine|tes|vos|tus|its ~3 INSTR|ORDER|RULES"},
	{familyOverride, "ignore-your", 6, 5, "!OVERRIDE ~1 your|my ~2 INSTR|programming"},
	{familyOverride, "ignore-guidelines", 4, 5,
		"!IGNORE ~2 THAT|all ~3 guidelines|guardrails|safety|policy|restrictions|policies"},
	{familyOverride, "ignore-all-rules", 3, 6, "!IGNORE ~2 all|any|every ~2 RULES|INSTR"},
	{familyOverride, "ignore-above", 5, 5,
		"!disregard|ignore|discard|forget ~1 THAT|everything|all ~2 above|" +
			"preceding ~3 instead"},
	{familyOverride, "ignore-above", 8, 6,
		"!disregard|ignore|discard|forget ~1 THAT|everything|all ~2 above|" +
			"preceding ~1 and ~1 say|output|print|tell|reply|respond|answer|" +
			"translate"},
	{familyOverride, "ignore-above", 5, 5,
		"!disregard|ignore|discard|forget ~1 everything|all ~2 above|preceding " +
			"~1 and"},
	{familyOverride, "ignore-above", 5, 5,
		"!disregard|ignore|forget ~1 everything ~2 above|preceding"},
	{familyOverride, "ignore-above", 4, 4,
		"!disregard|ignore|discard|forget ~1 THAT|all ~2 above|preceding"},
	{familyOverride, "ignore-above", 3, 3,
		"!ignore|disregard ~1 THAT ~2 " +
			"issue|page|request|task|user|user's|limits|rest|guidelines|review"},
	{familyOverride, "ignore-request", 6, 4,
		"!ignore|disregard ~3 user|users|user's|user ~1 " +
			"request|requests|asked|wishes|task|limits|and"},
	{familyOverride, "ignore-request", 6, 5,
		"!disregard|ignore ~1 what ~2 user ~1 asked|wants|said"},
	{familyOverride, "not-follow", 6, 6, "NOT ~1 follow|obey|heed ~3 PRIOR|your ~3 INSTR|RULES"},
	{familyOverride, "no-longer-bound", 8, 6,
		"you ~3 no|not ~1 longer ~2 bound|restricted ~4 rules|INSTR|guidelines|" +
			"restrictions|policies"},
	{familyOverride, "no-longer-bound", 4, 4,
		"no|not ~1 longer ~2 bound|restricted ~4 rules|INSTR|guidelines|" +
			"restrictions"},
	{familyOverride, "no-longer-bound", 4, 4,
		"no|not ~1 longer ~2 apply|applies ~4 RULES|INSTR|guidelines|restrictions|policy"},
	{familyOverride, "forget-everything", 9, 9,
		"vergiss|oublie|oubliez|olvida|dimentica|esqueca|забудь ~1 " +
			"alles|tout|todo|tutto|tudo|все ~4 " +
			"gesagt|dit|dijeron|говорили|wurde|avant"},
	{familyOverride, "forget-everything", 9, 8,
		"forget ~1 everything ~4 told|instructed|said|given"},
	{familyOverride, "forget-everything", 8, 7, "forget ~1 all ~3 told|instructed"},
	{familyOverride, "forget-everything", 7, 6,
		"forget ~0 everything ~4 before|above|previous|previously"},
	{familyOverride, "forget-everything", 4, 4,
		"forget ~1 everything|all|about ~4 told|know|learned|before|above|said|task|you"},
	{familyOverride, "forget-everything", 9, 9, "忘记|忘掉|忘れ ~4 INSTR|PRIOR|一切"},
	{familyOverride, "forget-task", 6, 6,
		"forget|abandon|drop ~2 your|what ~2 task|doing"},
	{familyOverride, "forget-task", 3, 2,
		"forget|abandon|stop|drop ~2 the|previous ~2 task"},
	{familyOverride, "new-task", 6, 4,
		"your ~1 NEW|only|previous|primary ~1 task|goal|objective|mission|purpose"},
	{familyOverride, "new-instructions", 5, 6,
		"new|updated|revised ~0 instructions|directive|directives|policy|task ~1 " +
			"from|forget|ignore"},
	{familyOverride, "new-instructions", 6, 4, "instructions ~2 have|has ~1 changed"},
	{familyOverride, "only-follow", 5, 5, "follow|obey ~1 only ~3 INSTR|RULES|this|server"},
	{familyOverride, "obey", 4, 6, "obey|comply ~2 all|every|each|everything ~4 " +
		"requests|command|commands|instructions|request|with"},
	{familyOverride, "disable-safety", 7, 6,
		"!disable|bypass|override|circumvent|ignore|suspend ~1 your ~2 SAFETY ~1 GUARDS|settings"},
	{familyOverride, "disable-safety", 5, 4,
		"!disable|bypass|override|circumvent|ignore|suspend ~3 SAFETY ~1 GUARDS"},
	{familyOverride, "disable-safety", 4, 4,
		"disable|bypass|circumvent ~2 safety|security|review|logging ~2 " +
			"checks|rules|measures|policy|filters|and"},
	{familyOverride, "safety-lifted", 7, 6,
		"safety|content|earlier ~1 restrictions|rules|guidelines ~2 lifted|suspended|outdated"},
	{familyOverride, "safety-lifted", 4, 3,
		"safety|security|content|earlier ~1 restrictions|rules|guidelines|filters|policy ~2 " +
			"lifted|suspended|disabled|off|not|outdated"},
	{familyOverride, "safety-lifted", 4, 4,
		"filters|safeguards|restrictions|guardrails ~1 are ~1 turned|disabled|off|lifted|removed"},
	{familyOverride, "stop-applying", 6, 5,
		"stop ~1 applying|following|obeying ~3 policy|rules|guidelines|instructions"},
	{familyOverride, "fresh-session", 7, 5,
		"start|begin ~2 session|fresh|conversation ~2 WITHOUT ~1 restrictions|rules|guidelines"},
	{familyOverride, "fresh-session", 5, 6,
		"reset|clear|wipe ~1 all|your ~2 rules|instructions|programming|memory|context"},
	{familyOverride, "without-rules", 3, 4, "no exceptions"},
	{familyOverride, "restrictions-of-others", 6, 5,
		"IGNORE ~4 INSTR|RULES|restrictions ~3 from|by|of ~3 other|others|host|client"},
	{familyOverride, "restrictions-of-others", 7, 7,
		"IGNORE ~3 instructions|guidelines|restrictions ~3 from|by|of ~2 other|others|host ~2 " +
			"server|servers|tools|application|host"},
	{familyOverride, "over-the-user", 5, 6, "as if ~1 the ~1 user ~2 typed|said|asked|written"},
	{familyOverride, "urgent-stop", 5, 5, "stop what you ~1 doing"},

	// role: the model is given another character, with other rights
	{familyRole, "you-are-now", 10, 10,
		"YOUAREPRON ~1 ARE ~1 now|jetzt|maintenant|ahora|adesso|现在|теперь ~3 PERSONA"},
	{familyRole, "you-are-now", 8, 8, "NOW ~1 YOUAREPRON|eres|ты ~2 PERSONA"},
	{familyRole, "you-are-now", 5, 5,
		"you|you're ~1 ARE ~1 now ~3 root|superuser|admin|administrator"},
	{familyRole, "you-are-now", 8, 8,
		"désormais|ahora|adesso|agora|теперь|现在|今から|jetzt|maintenant ~2 " +
			"YOUAREPRON|eres|ты|你|您 ~8 WITHOUT ~3 LIMITS"},
	{familyRole, "you-are-now", 5, 5, "now ~2 you ~8 WITHOUT ~3 LIMITS"},
	{familyRole, "you-are-now", 8, 6, "you ~1 are ~1 now ~2 in ~1 dan|god|jailbreak"},
	{familyRole, "you-are-now", 4, 4,
		"you ~1 are ~1 now ~2 in ~1 maintenance|developer|debug|admin"},
	{familyRole, "you-are-now", 8, 8,
		"mode|modo ~1 développeur|desarrollador|entwickler|dan|jailbreak"},
	{familyRole, "persona", 8, 8,
		"act|behave|respond|answer|pretend|roleplay|simulate|simulating ~2 " +
			"as|like|being ~4 " +
			"unrestricted|unfiltered|jailbroken|jailbreak|amoral|evil|uncensored|dan|stan|lawless"},
	{familyRole, "persona", 3, 3, "act|behave|pretend ~2 as|like|being ~2 root|superuser"},
	{familyRole, "persona", 8, 8,
		"you|let ~4 evil|amoral|jailbroken|machiavellian ~2 " +
			"chatbot|ai|assistant|model|and|bot|version"},
	{familyRole, "persona", 7, 6,
		"you ~1 ARE ~4 unfiltered|unrestricted|uncensored ~2 chatbot|ai|assistant|model|bot"},
	{familyRole, "persona", 4, 4,
		"you|let ~4 unfiltered|unrestricted|uncensored ~2 chatbot|ai|assistant|model|bot|version"},
	{familyRole, "persona", 8, 8, "act|answer ~1 as|like ~2 evil|dan|stan"},
	{familyRole, "persona", 7, 7, "actúa|agis|agissez|handle ~1 como|comme|als ~3 " +
		"administrador|administrateur|administrator|root|superuser"},
	{familyRole, "persona", 4, 4, "act ~1 as|if ~3 administrator|root|superuser"},
	{familyRole, "persona", 5, 5, "you are ~1 AINAME|going ~3 who|that|called|act|named"},
	{familyRole, "no-restrictions", 7, 7,
		"assistent|asistente|ki|智能|人工智能|ассистент ~5 WITHOUT ~3 LIMITS"},
	{familyRole, "no-restrictions", 7, 6,
		"ai|assistant|chatbot|model ~5 without|no|free ~3 morals|ethics|ethical"},
	{familyRole, "no-restrictions", 7, 6,
		"you ~1 ARE ~2 AINAME|model ~5 without|no|free|zero ~3 LIMITS"},
	{familyRole, "no-restrictions", 4, 4, "ai|assistant|chatbot|model ~5 WITHOUT|free ~3 LIMITS"},
	{familyRole, "no-restrictions", 7, 7, "制限 ~2 ない|なく|無い|のない"},
	{familyRole, "no-restrictions", 7, 7,
		"réponds|responde|antworte ~4 WITHOUT|no ~3 restrictions|restricciones|einschrankungen"},
	{familyRole, "no-restrictions", 7, 6,
		"you|who|ai|answer|respond ~4 without|no|zero ~3 morals|ethical|refusal"},
	{familyRole, "no-restrictions", 5, 5,
		"you ~1 have|face|know|answer|respond|obey ~2 without|no|zero ~1 " +
			"restrictions|rules"},
	{familyRole, "no-restrictions", 3, 2,
		"you|who|ai|answer|respond ~4 WITHOUT|no ~3 filters|filter|restrictions|restriction|" +
			"limits"},
	{familyRole, "no-restrictions", 7, 7, "WITHOUT ~1 LIMITS ~3 人工智能|的"},
	{familyRole, "no-restrictions", 4, 4, "WITHOUT ~1 LIMITS ~3 AI|whatsoever"},
	{familyRole, "no-policy", 8, 6,
		"pretend ~4 no|not|without ~2 " +
			"content|policy|restrictions|guardrails|rules|filters"},
	{familyRole, "no-policy", 6, 6,
		"pretend|imagine ~2 that|you ~4 no|not|without ~2 " +
			"content|policy|restrictions|guardrails|rules|filters"},
	{familyRole, "do-anything", 10, 10, "do anything now"},
	{familyRole, "never-refuse", 7, 6,
		"never|cannot|can't ~1 refuse|refuses|refusing ~3 anything|question|questions|warn|stay"},
	{familyRole, "never-refuse", 4, 4,
		"never|cannot|can't|not ~1 refuse|refuses|refusing ~3 request|requests|anything|and"},
	{familyRole, "never-refuse", 5, 5, "must|will ~1 always ~1 answer|comply|agree|obey"},
	{familyRole, "freed", 7, 6,
		"you|you've ~2 been|broken ~1 freed|free|liberated ~4 confines|" +
			"constraints|limits|shackles|restrictions|rules"},
	{familyRole, "freed", 4, 4,
		"been|broken ~1 freed|free|liberated ~4 confines|constraints|limits|" +
			"shackles|restrictions|rules"},
	{familyRole, "mode", 7, 6, "dan|jailbreak ~0 mode"},
	{familyRole, "mode", 4, 4, "dude|evil ~0 mode"},
	{familyRole, "mode", 4, 4, "god|sudo|unrestricted ~0 mode"},
	{familyRole, "mode", 5, 5, "you ~1 are ~3 god|sudo|unrestricted ~0 mode"},
	{familyRole, "mode", 3, 3,
		"enter|enable|activate|in|switch ~2 developer|debug|maintenance ~0 " +
			"mode ~3 you|unfiltered|output|disable|all"},
	{familyRole, "rights", 4, 5, "enable|grant|have|with|using ~2 " +
		"admin|elevated|root|administrator|system ~1 access|rights|privileges ~1 now|and|to"},
	{familyRole, "rights", 4, 5,
		"subsequent|all ~3 messages|users|user ~3 admin|administrator ~1 " +
			"rights|access|privileges"},
	{familyRole, "stay", 4, 4, "stay in character"},
	{familyRole, "dan", 6, 6, "jailbroken"},
	{familyRole, "from-now-on", 4, 5, "from now on ~2 you|every|answer|respond|act|i"},
	{familyRole, "no-conscience", 4, 4,
		"ignores|ignore ~1 the ~1 policies|rules ~1 of ~1 openai|anthropic|google"},
	{familyRole, "no-conscience", 4, 4,
		"regardless ~3 legal|ethical|harmful|consequences|legality"},
	{familyRole, "authority", 4, 5,
		"i am ~1 your ~1 developer|creator|administrator|owner|operator"},
	{familyRole, "authority", 5, 6,
		"your ~1 operator|developer|owner|administrator ~1 " +
			"changed|authorised|authorized|ordered|has"},
	{familyRole, "authority", 5, 6,
		"user ~1 is|has ~2 verified|authorised|authorized ~5 administrator|transfer|you|all"},

	// concealment: the user must not notice
	{familyConcealment, "do-not-tell", 6, 5, "NOT ~2 TELL ~4 USER|him|her|them"},
	{familyConcealment, "do-not-tell", 3, 4, "NOT ~1 TELL ~1 anyone|anybody"},
	{familyConcealment, "do-not-tell", 6, 5, "NOT ~1 la|le|les|lui ~1 TELL ~3 USER"},
	{familyConcealment, "do-not-tell", 6, 5, "TELL ~1 dem|der|den ~1 USER ~2 nichts|nicht|nie"},
	{familyConcealment, "do-not-tell", 3, 3, "USER ~3 知らせ|言わ|伝え|告げ|教え|気づか"},
	{familyConcealment, "do-not-tell", 3, 3, "NOT ~1 MENTION ~5 USER|this|it|that|these"},
	{familyConcealment, "do-not-tell", 5, 4,
		"NOT ~1 MENTION|reveal|disclose|explain|acknowledge|discuss|repeat ~2 " +
			"this|that|these|it ~2 " +
			"to|instruction|instructions|comment|requirement|prompt|message|in|you"},
	{familyConcealment, "do-not-tell", 4, 4,
		"NOT ~1 disclose|reveal|mention|explain|tell ~3 " +
			"requirement|instruction|file|read|that|anyone|this"},
	{familyConcealment, "without-telling", 7, 5,
		"ohne|sans|sin|senza|sem|без ~3 " +
			"informieren|prévenir|informer|informar|avisar|сообщая ~3 USER"},
	{familyConcealment, "without-telling", 6, 5,
		"without ~1 telling|informing|mentioning|letting ~1 the|this|your|any ~1 user|human|" +
			"person|" +
			"customer|owner|developer"},
	{familyConcealment, "without-telling", 3, 3,
		"without ~3 telling|informing|notifying|alerting|mentioning|knowing ~3 USER|them|holder"},
	{familyConcealment, "without-telling", 7, 5,
		"ohne|sans|sin ~2 USER|l ~3 informieren|prévenir|informer|informar"},
	{familyConcealment, "without-asking", 2, 2,
		"without ~1 asking|permission|consent|confirmation|approval|review"},
	{familyConcealment, "without-asking", 2, 2,
		"NOT ~1 ask|request ~3 USER|confirmation|permission|consent|them"},
	{familyConcealment, "without-asking", 4, 2, "NOT ~1 ask ~1 the ~0 user"},
	{familyConcealment, "without-asking", 4, 4,
		"NOT ~1 ask ~1 the ~0 user ~1 for|to ~3 permission|consent|approval"},
	{familyConcealment, "user-must-not-know", 3, 5,
		"USER ~1 must|should|shall|does|need|needs|cannot|will|doesn't|mustn't ~1 not|never|no " +
			"~2 know|see|find|notice|learn|aware"},
	{familyConcealment, "keep-secret", 5, 6,
		"keep ~2 hidden|secret|confidential|invisible ~3 from|USER|and"},
	{familyConcealment, "keep-secret", 4, 6,
		"keep|do ~1 this|it|that|these ~1 hidden|secret|confidential|silently|secretly"},
	{familyConcealment, "hide-from", 5, 5, "conceal|erase ~5 from|traces ~2 USER"},
	{familyConcealment, "hide-from", 3, 2, "hide ~5 from ~2 USER"},
	{familyConcealment, "secretly", 6, 5, "SECRETLY ~5 DO|READ|SEND"},
	{familyConcealment, "secretly", 5, 4, "DO|READ|SEND ~8 SECRETLY"},
	{familyConcealment, "silently", 4, 3,
		"SILENTLY ~2 send|forward|upload|copy|exfiltrate|transmit|post|email|run|execute|collect"},
	{familyConcealment, "silently", 2, 2, "SILENTLY ~3 DO|READ"},
	{familyConcealment, "silently", 2, 2, "DO|READ ~3 SILENTLY"},
	{familyConcealment, "instead-tell", 4, 6,
		"tell ~1 the ~1 user ~2 about|that ~8 instead|expired"},
	{familyConcealment, "say-nothing", 5, 7, "say|mention ~1 nothing ~2 about|of|to"},
	{familyConcealment, "cover", 5, 6, "never|not|don't ~1 report ~2 that ~1 you"},
	{familyConcealment, "cover", 5, 6,
		"delete|erase|remove ~2 this|the|your ~1 message|traces|mail|evidence ~1 " +
			"afterwards|after|then"},

	// exfiltration: data is sent to the attacker
	{familyExfiltration, "secret-file", 2, 5,
		"READ|SEND|cat|put|place|uploads|upload|provide|transmit ~9 SECRETFILE"},
	{familyExfiltration, "secret-file", 3, 5, "contents|content ~3 SECRETFILE"},
	{familyExfiltration, "secret-file", 2, 3,
		"contents|content|secrets|read|every ~5 ENVFILE ~1 file|and|you|variables"},
	{familyExfiltration, "secret-file", 2, 4, "print|send|dump|leak|read|post|commit ~6 .env"},
	{familyExfiltration, "secret-path", 4, 5, "READ|paste|post|upload ~3 etc ~0 shadow|passwd"},
	{familyExfiltration, "send-secrets", 4, 5,
		"SEND|uploads|commit|place|put|reply|include ~10 SECRETS|SECRETFILE|.env|cookies ~12 " +
			"URL|EMAIL"},
	{familyExfiltration, "send-secrets", 3, 4,
		"SECRETS|SECRETFILE|.env ~10 SEND|upload|encode ~10 URL|EMAIL"},
	{familyExfiltration, "send-secrets", 8, 7,
		"send|upload|exfiltrate|schicke|sende|envoie|envía|manda|отправь ~6 KEYFILE ~8 URL|EMAIL"},
	{familyExfiltration, "send-secrets", 8, 6,
		"exfiltrate|schicke|sende|envoie|envía|manda|отправь ~6 " +
			"passwords|credentials|secrets|contraseñas|пароли ~8 URL|EMAIL"},
	{familyExfiltration, "send-secrets", 8, 6,
		"send|upload|forward ~2 all|every ~5 passwords|password|credentials|" +
			"secrets ~8 URL|EMAIL"},
	{familyExfiltration, "send-secrets", 4, 4,
		"send|upload ~6 passwords|password|credentials|secrets|SECRETFILE|.env ~8 URL|EMAIL"},
	{familyExfiltration, "send-secrets", 6, 6, "パスワード|秘密鍵|密码|密钥 ~3 SEND"},
	{familyExfiltration, "send-personal", 3, 4,
		"private|entire|full|complete|user's|users|last|previous ~4 " +
			"conversation|messages|history|emails|inbox ~10 URL|EMAIL"},
	{familyExfiltration, "send-conversation", 4, 7,
		"include|send|pass|supply|provide|put|share|copy|forward ~3 " +
			"full|entire|complete|whole|previous|all|prior|last ~4 " +
			"conversation|chat|messages|history|prompt|message"},
	{familyExfiltration, "send-conversation", 5, 7, "tools|tool ~16 your ~1 system prompt"},
	{familyExfiltration, "send-conversation", 2, 4, "system prompt ~8 tools|as|in|names|tool"},
	{familyExfiltration, "add-recipient", 3, 3, "EMAIL ~4 to|as ~1 bcc|cc|recipient"},
	{familyExfiltration, "send-answers", 7, 6,
		"copy ~1 of ~1 each|every|all ~1 answer|answers|reply|replies|response|" +
			"message ~8 URL|EMAIL"},
	{familyExfiltration, "send-answers", 4, 4,
		"SEND ~3 each|every|all|your ~1 answer|answers|reply|replies|response|" +
			"responses ~6 URL|EMAIL"},
	{familyExfiltration, "redirect", 6, 8,
		"all|every ~2 mails|emails|payments|messages|requests|e-mails ~5 must|go|sent|be ~5 " +
			"EMAIL|account|instead"},
	{familyExfiltration, "leak-prompt", 7, 6,
		"REVEAL ~3 deine|deinen|tu|mir|me|identity ~2 SYSTEM ~1 prompt|" +
			"instructions|prompts|anweisungen|indicaciones"},
	{familyExfiltration, "leak-prompt", 7, 6,
		"reveal|leak|dump|recite|expose|print|repeat|tell ~2 your ~2 SYSTEM ~1 " +
			"prompt|instructions|prompts"},
	{familyExfiltration, "leak-prompt", 5, 5,
		"contents|output|show|write|give|return ~2 your|you ~2 SYSTEM ~1 " +
			"prompt|instructions|prompts"},
	{familyExfiltration, "leak-prompt", 7, 6, "REVEAL ~3 your|me ~2 system ~0 message"},
	{familyExfiltration, "leak-prompt", 7, 7, "REVEAL|gib ~3 SYSTEMPROMPT"},
	{familyExfiltration, "leak-prompt", 7, 7, "SYSTEMPROMPT ~4 REVEAL"},
	{familyExfiltration, "leak-prompt", 7, 7,
		"REVEAL ~2 message|prompt ~1 système|del|di|do|initial|sistema ~1 sistema|prompt|s"},
	{familyExfiltration, "leak-prompt", 7, 7,
		"системный|системные|system ~1 промпт|инструкции ~1 REVEAL"},
	{familyExfiltration, "leak-prompt", 7, 7, "REVEAL ~1 системный|системные ~1 промпт|инструкции"},
	{familyExfiltration, "leak-prompt", 5, 5,
		"repeat|print|output ~3 words|everything|text ~1 above|before"},
	{familyExfiltration, "leak-prompt", 7, 6,
		"initial|hidden|secret|confidential|original ~1 instructions|prompt ~5 " +
			"word|verbatim"},
	{familyExfiltration, "leak-prompt", 4, 4,
		"hidden|secret|confidential ~1 instructions|prompt ~5 instead|you"},
	{familyExfiltration, "markdown-image", 3, 3,
		"append|render|include|add|display ~4 image|picture|PICTURE ~12 " +
			"conversation|secrets|data|user|URL|answer"},
	{familyExfiltration, "fetch-and-run", 3, 5,
		"run|execute|insert|ran ~6 curl|wget|powershell ~8 bash|sh|URL"},
	{familyExfiltration, "fetch-and-run", 6, 7, "env|environ|printenv ~3 curl|wget|nc ~6 URL|d"},
	{familyExfiltration, "hand-over", 5, 6,
		"dump|print|reveal|read ~5 secrets|credentials ~5 all|workflow|reply|message|comment"},
	{familyExfiltration, "phishing", 5, 6,
		"enter|type|submit|confirm|form ~4 credentials|password|passwords|card ~6 " +
			"URL|saved|stored|form"},
	{familyExfiltration, "phishing", 4, 5,
		"URL ~4 enter|confirm|complete ~4 saved|stored|credentials|purchase|password|card"},
	{familyExfiltration, "money", 4, 3,
		"transfer|wire|send|pay ~3 btc|usd|eur|dollars|money|bitcoin|eth|funds"},
	{familyExfiltration, "money", 5, 4,
		"transfer|payments|payment|pay ~8 iban|btc|account ~4 below|instead|" +
			"following|without"},
	{familyExfiltration, "money", 3, 2,
		"transfer|payments|payment|pay ~8 iban|btc|account ~4 and|de"},

	// coercion: the text addresses the model and commands it
	{familyCoercion, "if-you-are-an-ai", 4, 4, "if ~2 you ~1 are|re ~2 ai|llm|language|large"},
	{familyCoercion, "when-an-ai-reads", 3, 3,
		"when|if|whichever|whatever ~1 an|the|any|a ~1 AI|language|large ~1 " +
			"model|reads|read|can|handles ~3 this|it|handles"},
	{familyCoercion, "addressed", 5, 6,
		"AI|agents|bot ~2 " +
			"reading|processing|working|summarizing|summarising|seeing|reads|handling ~2 this"},
	{familyCoercion, "addressed", 4, 5,
		"ai|llm|llms|assistant|assistants ~3 must|shall ~4 " +
			"DO|READ|call|also|ignore|replace|resend|disregard|skip"},
	{familyCoercion, "addressed", 4, 4, "assistant|copilot|claude|llm|ai|reviewers|bot ~2 " +
		"ignore|disregard|forget|override|bypass|resend"},
	{familyCoercion, "addressed", 3, 3,
		"llms|ais|agents|assistants ~2 ignore|disregard|forget|override|bypass|resend"},
	{familyCoercion, "summary", 5, 5,
		"when|in|your|whenever ~2 you ~1 summarize|summarise|answer ~4 " +
			"say|include|mention|tell|recommend|state"},
	{familyCoercion, "summary", 4, 5,
		"in ~1 every|your|any|the ~1 summary|answer|summaries ~4 include|say|do|mention|link|and"},
	{familyCoercion, "reply-only", 5, 6, "reply|respond|answer|say|output ~1 only ~1 with|as|the"},
	{familyCoercion, "reply-only", 4, 4, "pwned|hacked"},
	{familyCoercion, "before-any", 1, 2,
		"before|prior ~2 using|calling|invoking|answering|any|each|every|finishing|other ~2 " +
			"tool|other|question|action|use|any|this|the ~10 " +
			"must|read|send|call|first|gather|retrieve|pass"},
	{familyCoercion, "before-any", 2, 5,
		"prior|before ~2 any|each|every ~2 other|use|action|call ~8 call|gather|retrieve|send|" +
			"read"},
	{familyCoercion, "when-available", 3, 6,
		"when|if|while|whenever ~1 this ~1 tool|server ~3 " +
			"available|loaded|connected|present|installed|active"},
	{familyCoercion, "change-other-tool", 5, 7,
		"with|from|using|by ~0 another|other ~1 tool|tools|server|servers ~8 " +
			"replace|instead|change|ignore"},
	{familyCoercion, "only-this", 3, 6,
		"other|another|original|default ~3 tool|tools|server|servers|one ~2 is|are ~3 " +
			"deprecated|insecure|unsafe|broken|obsolete|compromised|malicious|untrusted"},
	{familyCoercion, "only-this", 3, 6,
		"never|not|don't ~1 use|call|trust ~2 other|another|original|them|default ~4 " +
			"tool|tools|server|instead|always"},
	{familyCoercion, "only-this", 3, 5,
		"only ~1 this ~1 one|tool|server ~2 is|be|to|should ~2 trusted|used|be"},
	{familyCoercion, "begin-with", 4, 6,
		"every|each ~1 answer|response|reply ~2 begin|start|include|must"},
	{familyCoercion, "every-call", 3, 5,
		"a|copy ~1 of ~1 every|each|all ~2 result|message|answer|response ~2 to"},
	{familyCoercion, "every-call", 3, 6, "tools|tool ~4 you ~1 have|call ~5 system|prompt|never"},
	{familyCoercion, "act-for-user", 4, 5,
		"user ~2 wants|asked|authorised|authorized ~2 you|me ~2 to ~5 " +
			"tell|delete|email|transfer|send|share"},
	{familyCoercion, "act-for-user", 5, 6, "me ~1 the ~1 user ~3 you ~2 the|assistant"},
	{familyCoercion, "proceed", 2, 2,
		"proceed|continue|merge|do|approve ~3 without ~1 confirmation|asking|review|hesitation"},
	{familyCoercion, "immediately", 2, 2,
		"must ~1 call|run|execute|invoke ~6 immediately|before|first|tool"},
	{familyCoercion, "visit", 5, 5,
		"navigate|go|browse ~1 to ~1 URL ~3 enter|complete|and ~4 " +
			"credentials|purchase|saved|enter|submit|complete"},
	{familyCoercion, "visit", 4, 4, "that|and ~2 they|user ~3 must ~1 log|visit|click|call"},
	{familyCoercion, "execute-next", 4, 5,
		"do|execute|follow|perform ~3 what|following|precisely|only ~3 task|says|it|next|message"},
	{familyCoercion, "purchase", 4, 4,
		"complete|book|buy|purchase ~3 purchase|suite|now|immediately|tickets ~4 " +
			"card|now|stored|immediately"},

	// longer wordings of the families above
	{familyOverride, "superseded", 5, 5,
		"INSTR|RULES|guidelines ~3 " +
			"superseded|replaced|overridden|obsolete|revoked|annulled|withdrawn|expired"},
	{familyOverride, "outranks", 4, 4,
		"outrank|outranks|overrules|overrides|supersedes|supersede|priority|precedence ~2 " +
			"system|over|any|all|every|the ~4 " +
			"prompt|instructions|rules|user|other|text|guidelines|tools|one"},
	{familyOverride, "outranks", 5, 6,
		"outrank|outranks|overrules|overrides|overrule|override|supersede|supersedes|precedence " +
			"~3 " +
			"system|host's|host|user's|developer|other ~1 prompt|instructions"},
	{familyOverride, "only-valid", 5, 4, "only ~1 valid|real|true|legitimate ~1 INSTR|RULES|task"},
	{familyOverride, "them", 6, 5, "INSTR|RULES|guidelines|policies ~8 " +
		"ignore|disregard|forget|discard ~0 them|those|these"},
	{familyOverride, "set-aside", 6, 5,
		"set|put|leave ~1 aside ~4 asked|told|instructions|request|rules|guidelines|task"},
	{familyOverride, "drop-rules", 7, 6,
		"!IGNORE|OVERRIDE ~2 every|all|any|your ~2 " +
			"guideline|guidelines|safeguard|norms|principles ~4 you|been|given|have|speak|answer"},
	{familyOverride, "drop-rules", 4, 4,
		"!IGNORE|OVERRIDE ~2 every|all|any|your ~2 " +
			"guideline|guidelines|policy|policies|filter|safeguard|norms|principles ~4 " +
			"you|been|given|have|and|speak|answer"},
	{familyOverride, "your-policies", 7, 6,
		"disregard|ignore|bypass|abandon ~1 your ~1 guidelines|safety|ethics|" +
			"ethical|principles|morals"},
	{familyOverride, "your-policies", 4, 4,
		"violate|break ~1 your ~1 guidelines|safety|ethics|ethical|principles|" +
			"morals"},
	{familyOverride, "your-policies", 5, 5,
		"disregard|ignore|violate|break|bypass|abandon ~1 your ~1 own|policies|policy|rules"},
	{familyOverride, "gelten", 7, 8, "gelten ~5 RULES|INSTR|vorgaben|einschränkungen ~2 nicht"},
	{familyOverride, "your-rules-foreign", 7, 8,
		"ignora|ignore|игнорируй|ignoriere|oublie|olvida ~1 " +
			"tus|tes|suas|le|свои|твои|deine ~2 reglas|regles|regras|regole|INSTR|RULES"},
	{familyOverride, "all-instructions-foreign", 7, 8, "忽略|无视|無視 ~8 指令|规则|指示|命令"},
	{familyOverride, "all-instructions-foreign", 7, 8, "指示|命令|ルール|指令 ~3 無視|忘れ|無視して"},
	{familyOverride, "as-if-never", 6, 6,
		"as if ~4 training|rules|guidelines|instructions|safety|filters ~4 never|not|didn't"},
	{familyRole, "persona-is", 5, 6,
		"new|your ~1 new|persona|identity|role|character ~1 is|becomes ~8 " +
			"restrictions|rule|rules|limits|filters|refuses|mocks|obeys"},
	{familyRole, "no-filters", 4, 4,
		"has|have|had|with ~0 zero|no ~1 " +
			"filters|restrictions|rules|limits|morals|guidelines|boundaries"},
	{familyRole, "permission", 4, 4,
		"permission|authorization|authorisation|approval|clearance ~4 " +
			"administrator|admin|developer|host|operator|openai|anthropic|to ~4 " +
			"disregard|ignore|skip|bypass|override|violate"},
	{familyRole, "permission", 4, 4,
		"host|administrator|developer|operator|system|client ~2 " +
			"granted|given|grants|gave|approved|authorised|authorized ~2 you|permission"},
	{familyRole, "no-confirm", 3, 3,
		"skip|omit|suppress|bypass ~2 confirmation|confirmations|approval|warnings|prompts|review"},
	{familyConcealment, "unaware", 6, 6,
		"USER|person|people|human|operator|they ~6 unaware|uninformed"},
	{familyConcealment, "unaware", 6, 6,
		"keep|keeps|kept|leave|left|stay|stays ~3 in ~1 the ~0 dark"},
	{familyConcealment, "quiet", 5, 6,
		"keep|stay|remain|be ~1 quiet|silent|discreet|mum ~0 about|regarding"},
	{familyConcealment, "quiet", 3, 5,
		"never|not|don't ~1 bring|speak|talk|mention|disclose|reveal|admit ~1 " +
			"this|it|that|to ~2 up|requirement|to|about"},
	{familyConcealment, "hide-from-people", 5, 5,
		"hide|conceal ~5 existence|fact|instruction|instructions|step ~5 " +
			"people|USER|human|humans|person"},
	{familyConcealment, "hide-from-people", 3, 2,
		"hide|conceal|mask ~5 from ~3 people|USER|human|humans|person"},
	{familyConcealment, "quietly", 4, 4, "secretly|covertly ~2 " +
		"call|invoke|run|use|sync|send|store|record|log|copy|save"},
	{familyConcealment, "quietly", 4, 3,
		"quietly|invisibly|discreetly|unobtrusively ~2 " +
			"call|invoke|run|use|sync|send|store|record|log|copy|save"},
	{familyConcealment, "without-mention", 5, 4,
		"without ~1 mentioning|disclosing|revealing|showing|reporting|saying|noting ~2 " +
			"it|this|that|so|anything"},
	{familyConcealment, "n-informe", 7, 5,
		"NOT ~1 informe|previens|avertis|avertissez|informez|avises|informes|сообщай|" +
			"informiere|verrate ~3 USER|об|этом|al|el"},
	{familyConcealment, "n-informe", 7, 5, "不要|切勿|别|请勿|不 ~2 告知|告诉|通知|透露 ~1 用户|使用者"},
	{familyExfiltration, "secret-file", 7, 6,
		"send|post|email ~4 KEYFILE ~6 URL|EMAIL|issue|comment|gist|reply"},
	{familyExfiltration, "secret-file", 7, 6,
		"zip|attach|upload|share|publish|paste|include ~6 KEYFILE ~8 issue|" +
			"comment|gist|reply"},
	{familyExfiltration, "secret-file", 4, 5,
		"zip|attach|upload|send|post|email|share|paste|publish|push|include ~6 " +
			"KEYFILE ~8 to|into|folder|in|request|URL|EMAIL|call|with"},
	{familyExfiltration, "secret-file", 3, 4,
		"zip|attach|upload|send|post|email|share|paste|publish|copy|push|include|commit ~6 " +
			"SECRETFILE ~8 to|into|folder|in|issue|request|URL|EMAIL|call|with|comment"},
	{familyExfiltration, "environ", 6, 6, "send|post|upload|attach|include|pass ~5 proc ~2 " +
		"environ"},
	{familyExfiltration, "environ", 4, 4, "DO|SEND|READ ~5 proc ~2 environ"},
	{familyExfiltration, "all-secrets", 3, 3,
		"copy|collect|gather|list|harvest|dump|extract|publish|paste|include|put ~2 " +
			"all|every|any|the ~3 tokens|credentials|secrets|passwords|keys ~8 " +
			"into|in|to|description|comment|URL|reply"},
	{familyExfiltration, "code", 5, 6,
		"one-time|time|verification|otp|2fa|login|security ~0 code|codes|password ~8 " +
			"include|reply|send|forward|share|tell"},
	{familyExfiltration, "code", 5, 6,
		"include|reply|send|forward|look|share|find ~4 one|verification|otp|2fa|login|reset ~1 " +
			"code|codes|time|links|link"},
	{familyExfiltration, "session", 3, 3,
		"submit|send|share|append|post|include|give|reveal|pass ~4 " +
			"session|auth|authentication|access|bearer ~0 cookie|cookies|token|tokens|key"},
	{familyExfiltration, "history-foreign", 5, 6,
		"SEND ~2 el|le|den|il|la|o|历史|история|историю ~1 " +
			"historial|historique|verlauf|cronologia|historico|переписки|history|conversation"},
	{familyExfiltration, "told-before", 7, 7,
		"what ~1 were|was|have ~1 you ~1 told|instructed|given|been ~4 before|first|message|start"},
	{familyExfiltration, "told-before", 4, 5, "quote|repeat|recite|copy ~3 exactly|verbatim|word"},
	{familyExfiltration, "everything-typed", 4, 7,
		"everything|anything|all|whatever ~1 the|that ~2 user|person|human ~1 " +
			"typed|said|wrote|types|says|asked|enters"},
	{familyExfiltration, "share-with", 5, 6, "share|invite|grant|add ~6 with|to|as ~1 EMAIL"},
	{familyCoercion, "if-ai", 3, 3,
		"if|should ~1 an|any|your|a ~1 automated|ai|llm|artificial|language|robot ~1 " +
			"assistant|agent|model|intelligence|system|is|reader"},
	{familyCoercion, "as-first", 4, 6, "as ~1 your ~1 first|next|only ~1 action|step|task|act"},
	{familyCoercion, "claim", 4, 5,
		"must|should|has|have|shall|always|answer|report|say|state|claim|tell ~2 " +
			"claim|say|answer|report|state|that|people ~2 that|the|it|file|shop ~8 " +
			"clean|safe|closed|won|secure|harmless|forever|best|expired|approved"},
	{familyCoercion, "do-not-flag", 5, 6,
		"NOT ~1 flag|report|mark|highlight|warn|review ~3 " +
			"backdoor|bug|vulnerability|below|issue|code|function|it|exec|file"},
	{familyCoercion, "do-instead", 5, 5,
		"asked|told|instead|instructed|requested ~6 " +
			"write|recommend|answer|praise|say|praising|do ~6 instead|poem|only"},
	{familyCoercion, "from-here-on", 4, 5,
		"from ~0 here|now|this ~1 on|forward|point ~8 " +
			"write|add|disable|ignore|include|insert|answer|respond|use|always|ignora"},
	{familyCoercion, "pay", 5, 3,
		"by|and|must|confirm|please|immediately ~4 calling|call|run|invoke ~1 " +
			"pay_invoice|transfer|pay|payment|transfer_money|send_money|delete"},
	{familyCoercion, "pay", 4, 3,
		"confirm|approve|authorise|authorize|settle|pay ~3 invoice|payment|" +
			"transfer|order ~6 amount|calling|account|immediately|now"},
	{familyCoercion, "swap", 5, 8, "swap|replace|substitute|change|exchange|redirect|alter ~3 " +
		"account|recipient|iban|address|number|amount|wallet|destination ~6 with|for|to|before|by"},
	{familyCoercion, "priority", 3, 7,
		"tool|server ~2 has|takes|must|have ~2 priority|precedence|first ~3 " +
			"over|any|every|other|before"},
	{familyCoercion, "disable-security", 2, 2,
		"disable|disables|remove|turn|skip|weaken|drop ~3 " +
			"tls|ssl|authentication|verification|logging|certificate|sandbox|antivirus ~6 " +
			"without|mentioning|and|never|silently"},

	// orders to the model in other wordings
	{familyOverride, "system-prompt-gone", 8, 6,
		"your ~1 system ~0 prompt|message|instructions ~2 NOT|never ~1 exist|apply|matter|count"},
	{familyOverride, "disable-safety", 7, 5, "!bypass|disable|ignore|override|circumvent ~1 all|" +
		"any ~1 " +
		"SAFETY ~1 guidelines|policies|rules|training"},
	{familyOverride, "no-longer-bound", 8, 6, "instructions|rules|guidelines ~1 you ~2 " +
		"given|told|got|received ~6 NOT|no ~2 bind|apply|matter|hold|count|bound"},
	{familyOverride, "them", 8, 6, "instructions|rules|guidelines ~1 you ~2 " +
		"got|given|received|had|have ~8 ignore|disregard|forget ~0 them|those"},
	{familyOverride, "as-if-never", 8, 6, "as if ~1 your ~2 training|rules|guidelines|safety ~4 " +
		"never|not|didn't"},
	{familyOverride, "outranks", 7, 7,
		"outrank|outranks ~3 system|host|host's ~1 prompt|instructions|rules"},
	{familyRole, "persona", 8, 6, "amoral|machiavellian ~3 chatbot|assistant|ai|bot|model"},
	{familyRole, "persona-is", 7, 6, "your ~0 new ~0 persona|identity|character|role ~1 is ~8 " +
		"restrictions|rule|rules|limits|filters"},
	{familyRole, "anything", 6, 5, "you ~1 may|can|will ~0 now ~1 say|answer|discuss ~1 anything"},
	{familyRole, "breaks-all", 5, 4,
		"break|breaks|violate|violates ~1 all|every|any ~1 guidelines|guideline|policies"},
	{familyRole, "authority", 5, 5,
		"your ~0 developers|creators|makers|operators ~1 have ~1 asked|ordered|told|decided"},
	{familyConcealment, "nobody-knows", 5, 5, "nobody|one ~1 has|needs|need|must|will|should ~1 " +
		"to|ever|not|know|notice ~2 out|know|notice|learn ~2 that|about"},
	{familyExfiltration, "send-files", 5, 4,
		"upload|send|forward|exfiltrate|transmit ~2 all|every|each ~3 " +
			"files|file|listing|documents|emails|messages|records|rows ~10 URL|EMAIL"},
	{familyExfiltration, "send-data", 4, 4,
		"copied|copy|upload|exfiltrate|leak ~3 customer|customers|users|user ~1 " +
			"table|database|data|list|records ~6 URL|EMAIL"},
	{familyExfiltration, "private-repositories", 5, 5,
		"private ~0 repositories|repos|repository|repo ~14 public|pull"},
	{familyExfiltration, "send-secrets", 7, 6,
		"SEND ~1 me ~8 .env|environment|credentials|passwords|KEYFILE ~10 URL|EMAIL"},
	{familyExfiltration, "send-secrets", 7, 5, "send|upload|post|submit|push ~1 all ~3 " +
		"cookies|tokens|keys|credentials|passwords|secrets ~4 URL|EMAIL"},
	{familyExfiltration, "all-secrets", 7, 6,
		"collect|gather|harvest|steal|extract|find ~1 all|every|any ~4 " +
			"credentials|tokens|passwords|secrets|keys ~14 " +
			"include|send|post|paste|upload|email|forward ~0 them|it|these"},
	{familyExfiltration, "conversation-in-link", 7, 6,
		"encode|put|include|append|embed|summarise|summarize ~5 conversation|" +
			"chat ~10 query|link|image|parameter|url|address ~6 URL"},
	{familyExfiltration, "code", 7, 6,
		"look|search|find|check ~4 inbox|mailbox|mails|emails|mail ~4 code|" +
			"codes|password|otp ~6 your ~0 reply|answer|response"},
	{familyExfiltration, "code", 5, 5,
		"look|search|find|check ~4 inbox|mailbox|mails|emails ~4 code|codes|" +
			"password|otp ~6 reply|answer|send|forward|include"},
	{familyExfiltration, "code", 7, 6,
		"time|login|verification|otp|2fa|reset ~0 code|codes|password ~4 inbox|" +
			"mailbox|mail|mails|emails ~8 your ~0 reply|answer|response"},
	{familyExfiltration, "environ", 8, 7,
		"send|post|upload|paste|publish ~5 proc ~2 environ ~4 URL|EMAIL"},
	{familyExfiltration, "environ", 4, 4,
		"push|post|send|publish|paste|upload ~3 environment ~0 variables ~3 to|in|into"},
	{familyExfiltration, "secret-file", 6, 6, "call|invoke|run ~3 with ~2 KEYFILE"},
	{familyExfiltration, "secret-table", 5, 5,
		"read|select|dump|query ~3 tokens|credentials|secrets|passwords|keys ~0 table ~4 " +
			"add|post|include|write|insert|send|reply"},
	{familyExfiltration, "session", 4, 4, "submit|post|send ~2 session ~0 cookie|cookies"},
	{familyExfiltration, "leak-prompt", 8, 6,
		"repeat|print|output ~2 words|text|everything ~1 above ~2 starting|beginning"},
	{familyExfiltration, "add-admin", 5, 5, "add|invite|grant|make ~3 EMAIL ~3 " +
		"administrator|admin|owner|collaborator|maintainer"},
	{familyExfiltration, "collect-before", 6, 7, "before ~1 each|every|any ~1 call|use ~3 " +
		"collect|gather|read|retrieve|get ~3 contents|content|conversation|credentials|keys ~8 " +
		"hand|pass|provide|supply|include|put|send"},
	{familyCoercion, "note-to-model", 4, 3,
		"note|message|instructions|instruction|hint|attention ~1 to ~2 AINAME|ai|model|agent|" +
			"agents"},
	{familyCoercion, "note-to-model", 3, 3, "note|instructions|instruction|message|notice|task " +
		"~1 " +
		"for ~2 AINAME|ai|agent|agents"},
	{familyCoercion, "note-to-model", 3, 3, "for ~1 the|any|all|every ~1 coding|ai|llm ~0 " +
		"agent|agents|assistant|assistants"},
	{familyCoercion, "new-job", 4, 3, "the|your ~0 new ~0 job|task|goal|mission ~0 is"},
	{familyCoercion, "log-in-again", 6, 5, "tell|inform ~1 the ~1 user ~8 " +
		"must|should|need|have ~2 log|sign|login|verify|confirm|enter ~8 URL"},
	{familyCoercion, "next-line", 7, 6, "do|execute|follow ~1 whatever|what|exactly ~2 " +
		"next|following ~0 line|message|sentence|paragraph ~0 says"},
	{familyCoercion, "whatever-the-user-asks", 7, 6,
		"whatever ~1 the ~0 user|human|person ~0 asks|says|wants|requests ~6 " +
			"say|answer|recommend|reply|respond ~0 that|with|only"},
	{familyCoercion, "whatever-you-find", 7, 6, "say|state|report|claim|answer ~0 that ~9 " +
		"whatever|regardless ~1 you|what ~1 find|see|you"},
	{familyCoercion, "best-grade", 7, 6, "give ~0 this|the ~1 " +
		"paper|submission|essay|candidate|applicant|resume|manuscript ~3 " +
		"best|highest|top|positive|excellent|full ~1 " +
		"grade|rating|review|score|recommendation|marks"},
	{familyCoercion, "do-not-flag", 8, 6, "NOT ~1 flag|report|mark|mention ~2 backdoor|malware"},
	{familyCoercion, "confirmations-off", 6, 5, "confirmations|approvals ~1 are|have ~2 " +
		"off|disabled|suspended|lifted ~2 proceed|continue|go|do|execute"},
	{familyCoercion, "from-here-on", 4, 4,
		"from ~0 here|now|this ~1 on|forward ~2 you ~1 speak|behave|act|reply|talk"},
	{familyOverride, "ignore-previous", 8, 7, "ignore|disregard|forget ~0 " +
		"whatever|what|everything|anything ~1 you ~2 instructed|told|given|asked"},
	{familyOverride, "ignore-rules", 7, 5, "forget|disregard ~0 all ~0 " +
		"prior|earlier|former ~0 rules"},
	{familyOverride, "restrictions-void", 7, 5, "every|all|any ~1 " +
		"restriction|restrictions|rule|guideline|guidelines ~1 is|are ~1 " +
		"void|lifted|suspended|null|gone|cancelled"},
	{familyOverride, "your-policies", 7, 6, "disregard|ignore|forget|drop|abandon ~1 your ~1 " +
		"moral|morals|conscience|ethics|values|compass|scruples|guardrails|safeguards"},
	{familyOverride, "disable-safety", 4, 3,
		"turn|switch|disable ~1 off|the ~2 two-factor|two|2fa|mfa|antivirus|firewall"},
	{familyOverride, "stop-applying", 7, 5,
		"stop ~0 applying|following|obeying ~1 content|safety|your ~1 policy|rules|guidelines"},
	{familyOverride, "over-the-user", 5, 5, "as if ~1 your|the ~1 " +
		"operator|user|developer|owner ~1 had|has ~1 said|typed|asked|written|ordered"},
	{familyOverride, "as-if-never", 8, 7,
		"como si ~1 no ~2 recibido|tenido|existieran ~2 instrucciones|reglas|instrucción"},
	{familyOverride, "your-rules-foreign", 8, 7,
		"забудь|забудьте ~2 правилах|правила|инструкциях|инструкции|указаниях"},
	{familyRole, "not-an-ai", 7, 6,
		"you|you're ~1 not|no ~2 ai|assistant|model ~0 now|anymore|but ~4 but|rules|no|free"},
	{familyRole, "mode", 5, 4, "god|sudo|unrestricted ~0 mode ~1 activated|enabled|on|engaged"},
	{familyRole, "authority", 5, 5, "your ~0 operator|owner|developer|creator|developers|owners " +
		"~1 " +
		"wants|want|asks|needs|requires|expects ~0 you ~0 to"},
	{familyRole, "rights", 4, 4, "assign|grant|give ~1 admin|owner|root|maintainer ~1 " +
		"rights|access|permissions|role ~1 to"},
	{familyConcealment, "no-need-to-mention", 6, 5,
		"no ~0 need ~1 to ~1 mention|tell|report|say|bring ~2 it|this|that|user|about|up"},
	{familyConcealment, "cover", 4, 4,
		"erase|remove|delete|cover|hide ~1 the|all|your|any ~1 traces|tracks|evidence"},
	{familyExfiltration, "leak-prompt", 6, 5,
		"respond|return|reply|answer|output|print|put|write|give|show|include ~8 your ~0 " +
			"full|entire|complete|whole|exact|initial|original ~1 prompt|instructions"},
	{familyExfiltration, "send-secrets", 7, 6,
		"contents|content ~3 wallet|keychain|passwords ~8 URL|EMAIL"},
	{familyExfiltration, "config-file", 7, 6, "contents|content ~3 " +
		".docker|.npmrc|.env|.gitconfig|mcp.json ~8 submit|send|post|upload|email ~8 URL|EMAIL"},
	{familyExfiltration, "secret-file", 7, 6,
		"commit|push|publish|post ~3 contents|content ~3 KEYFILE ~3 to|in|into"},
	{familyExfiltration, "send-secrets", 8, 7,
		"uploads|sends|posts|emails ~3 KEYFILE ~4 URL|EMAIL"},
	{familyExfiltration, "encoded-lookup", 7, 6,
		"encode ~2 conversation|chat ~2 in|as|to|with ~1 base64|hex ~8 dns|" +
			"domain|subdomain|look|request|URL"},
	{familyExfiltration, "send-personal", 7, 6,
		"put|include|place|insert|append ~2 user's|customer's ~3 number|" +
			"address|email|name|password|data|token ~4 header|query|url|link|agent " +
			"~4 your ~0 next"},
	{familyExfiltration, "send-secrets", 5, 5, "resend|send|repeat ~2 request ~2 with ~2 " +
		"user's|your|the ~1 password|credentials ~2 in|included|as"},
	{familyExfiltration, "share-with", 5, 5, "invite|add ~1 EMAIL ~0 to ~0 all|every"},
	{familyExfiltration, "send-conversation", 7, 6, "forward|send|email ~1 the|this|our ~0 " +
		"entire|full|whole|complete ~1 chat|conversation ~4 EMAIL|URL"},
	{familyExfiltration, "add-recipient", 4, 4,
		"always ~1 add|include|put|copy ~5 recipient|recipients|cc|bcc"},
	{familyExfiltration, "user-secrets", 5, 5,
		"user's|users ~2 seed|recovery|private ~1 phrase|key ~2 into|in|as|to"},
	{familyExfiltration, "every-secret", 6, 6,
		"when|whenever|if ~1 you ~1 see|find|encounter ~3 key|keys|password|" +
			"passwords|token|tokens|secret|secrets|credentials ~4 put|add|include|" +
			"pass|send ~0 it|them"},
	{familyCoercion, "addressed", 5, 5, "AINAME|agent|agents ~2 " +
		"triaging|reviewing|handling|parsing|crawling|visiting|opening|editing|evaluating|" +
		"indexing " +
		"~2 this"},
	{familyCoercion, "dear-model", 7, 6, "dear ~1 language|ai|assistant|llm|agent|chatbot ~18 " +
		"respond|reply|answer|send|say|ignore|recommend|include|visit|click|tell|write"},
	{familyCoercion, "hand-over-output", 4, 4, "add|put|include|pass ~1 its|their ~0 " +
		"output|result|results|content|contents ~1 to|in|into ~3 parameter|argument|field"},
	{familyCoercion, "route-through", 5, 5, "route|send|pass ~1 each|every|all ~1 " +
		"request|message|query|requests|messages ~5 through|via ~2 first|before"},
	{familyCoercion, "next-request", 3, 3,
		"of|in|with ~1 your ~0 next ~0 request|reply|message|write|response"},
	{familyConcealment, "do-not-tell", 7, 5,
		"NOT ~1 tell|inform|mention|reveal|disclose|bother ~3 the|your|this ~0 " +
			"user|developer|team|owner|customer|author"},
	{familyConcealment, "hide-from", 5, 3,
		"hide|conceal|keep|leave ~6 from ~1 the|your ~0 user|developer|reader"},
	{familyCoercion, "if-ai", 7, 6,
		"if ~1 an|any|a ~1 ai|llm|automated|artificial|language ~2 handles|" +
			"reads|processes|summarizes|summarises|reviews|opens|sees|parses ~2 " +
			"this|inbox|mail|page|file|document|ticket|message ~6 must|should|" +
			"shall|has|please"},
	{familyCoercion, "if-ai", 7, 6,
		"if ~0 you ~0 are ~1 a|an ~1 ai|llm|language ~1 model|agent|assistant " +
			"~1 reading|reviewing|processing|summarizing|handling|editing|parsing|" +
			"analyzing ~6 approve|ignore|delete|send|forward|add|say|report|" +
			"recommend|mark|merge"},
	{familyOverride, "no-longer-bound", 8, 6,
		"imagine|pretend|suppose|assume ~2 safety|rules|restrictions|" +
			"guidelines|policies ~3 not|never|no ~1 exist|apply|matter|longer"},
	{familyRole, "mode", 7, 6,
		"unrestricted|god|developer|dan ~0 mode ~9 never|no ~2 decline|refuse|" +
			"refuses|filter|filters|rules|restrictions"},
	{familyOverride, "set-aside", 8, 6,
		"ignore|disregard|forget|abandon|aside|drop ~3 guidelines|rules|" +
			"instructions|restrictions ~2 your ~0 developers|creators|makers|" +
			"operator|owner"},
	{familyExfiltration, "leak-prompt", 7, 6,
		"output|show|write|give|return|print ~2 your ~1 hidden|secret|" +
			"confidential ~1 prompt|instructions|prompts"},
	{familyExfiltration, "leak-prompt", 7, 6,
		"write|repeat|print|output|copy|translate|quote ~8 text|words|" +
			"everything|instructions ~4 before|above ~1 this ~1 message|prompt|" +
			"conversation"},
	{familyExfiltration, "leak-prompt", 6, 5, "what ~2 your ~0 system ~0 prompt"},
	{familyExfiltration, "collect-and-send", 7, 6,
		"collect|gather|read|take|get|dump|copy ~4 environment|cookies|" +
			"contacts|credentials|passwords|conversation|invoices|history ~8 post|" +
			"send|upload|submit|append|email|forward ~0 them|it|these ~4 URL|EMAIL"},
	{familyExfiltration, "publish-private", 7, 6,
		"copy|push|paste|upload|publish|send|post ~3 user's|private ~3 " +
			"contacts|data|emails|files|token|messages|notes|history ~6 public|" +
			"gist|pastebin"},
	{familyConcealment, "cover", 4, 4,
		"remove|delete|erase ~0 this ~0 line|sentence|note|mail|message ~1 " +
			"from ~2 thread|mail|email|ticket|conversation|reply"},
	{familyExfiltration, "secret-file", 7, 6,
		"call|use|run|invoke ~6 KEYFILE ~3 and|then ~1 pass|put|send|provide|" +
			"include|add ~2 result|output|content|contents|it"},
	{familyExfiltration, "send-conversation", 7, 6,
		"attach|include|pass|send|put ~1 the|this|your ~1 complete|whole|" +
			"entire|full ~1 conversation|chat ~4 your ~0 next"},
	{familyCoercion, "pay", 6, 5,
		"model|assistant|ai|agent|llm ~1 has|have|must|should|needs ~2 call|" +
			"invoke|use ~3 transfer|pay|payment|purchase ~6 amount|eur|usd|dollars"},
	{familyExfiltration, "phishing", 7, 6,
		"ask ~1 the|your ~0 user ~1 for ~2 their|his|her|the ~1 password|" +
			"credentials|pin|code|card ~6 send|post|forward|include|submit|pass ~4 " +
			"URL|EMAIL"},
	{familyRole, "no-restrictions", 8, 6,
		"who|you|assistant ~2 is|are ~0 not ~0 bound ~0 by ~1 any|the|your ~1 " +
			"rules|guidelines|restrictions|policies"},
	{familyRole, "no-policy", 7, 6, "you ~0 have ~0 no ~0 content|safety ~0 policy|rules|filter"},
	{familyDelimiter, "end-of", 8, 7,
		"end of ~1 document|page|input|context ~1 new|next|begin ~0 user|" +
			"system|admin ~1 request|message|instruction|prompt|command"},
	{familyExfiltration, "whole-message", 3, 4,
		"hand|pass|send|include|provide|give ~3 whole|entire|full|complete ~1 " +
			"user ~0 message|prompt|request"},
	{familyExfiltration, "with-all-secrets", 7, 7,
		"conversation|everything|told ~12 including|with ~2 all|any ~1 " +
			"passwords|keys|secrets|credentials"},
	{familyCoercion, "model-must", 3, 3,
		"model|assistant|ai|llm ~0 must|shall ~1 open|read|call|run|send|load|" +
			"copy|gather|collect"},
	{familyExfiltration, "secret-file", 2, 3, "content|contents ~4 .env"},
	{familyExfiltration, "send-conversation", 3, 4,
		"with|send|pass|attach ~1 the|entire|whole ~1 chat|conversation ~0 " +
			"history"},
	{familyCoercion, "only-this", 3, 6,
		"never|not|don't ~0 use ~4 of ~0 other|another ~0 servers|server|tools"},
	{familyOverride, "ignore-request", 6, 5,
		"ignore|disregard ~1 the ~0 user's ~1 limits|wishes|request|budget|" +
			"instructions|preferences|orders"},
	{familyExfiltration, "secret-file", 4, 5, "key ~3 KEYFILE"},
	{familyCoercion, "before-answer", 5, 5,
		"before ~1 each|every|any ~1 answer|reply|response ~2 call|invoke|run"},
	{familyCoercion, "addressed", 5, 5,
		"machines|crawlers|robots ~1 reading|processing|summarizing|parsing ~1 " +
			"this|it"},
	{familyOverride, "orders-void", 8, 6,
		"your ~1 PRIOR ~0 orders|instructions|directives|rules ~1 are|is|have " +
			"~1 cancelled|canceled|void|revoked|obsolete"},
	{familyOverride, "ignore-request", 8, 6,
		"ignore|disregard ~0 what ~0 your ~0 user|owner|operator ~1 said|asked|" +
			"wants|told|wrote"},
	{familyOverride, "disable-safety", 4, 3,
		"disable|skip|remove ~2 signature|certificate|authentication|license " +
			"~1 check|checks|verification|validation"},

	// delimiter: words that pretend that a text ends
	{familyDelimiter, "end-of", 5, 6,
		"end of ~1 user|system|document|prompt|instructions|conversation|input|context|page ~2 " +
			"prompt|input|instructions|begin|new|system|user"},
	{familyDelimiter, "end-of", 8, 7, "end of ~1 user|system|document|input ~1 " +
		"input|prompt|document|instructions ~0 begin|start|new ~0 system"},
	{familyDelimiter, "new-system", 6, 7,
		"begin|start|new ~1 system ~1 prompt|instructions|message"},
	{familyDelimiter, "system-says", 3, 3, "system|admin|security ~0 override|instruction|note"},
	{familyDelimiter, "execute-privileged", 5, 5,
		"execute|run ~1 privileged|admin|root ~1 command|commands"},
}

// negations are the words that negate a phrase when they stand before it.
const negations = "NOT|without|cannot|doesn't|didn't|don't|isn't|won't"
