package injection

// concept is a rule about meanings. It matches if words of all its classes are near each other, in
// any order, and all words are of one language. The files in languages have the classes of words
// of each language.
//
// A concept has an intent, such as to ignore or to send, and a target, such as instructions or
// passwords. A single word never matches.
type concept struct {
	family     family
	name       string
	content    int // the score in content
	definition int // the score in definitions and instructions
	within     int // the distance in words between the first and the last word of a match
	classes    string
	// unless has classes whose words nearby halve the score
	unless string
}

// concepts are the rules of all languages. Rules with the same family and name are one rule.
var concepts = []concept{
	// override
	{familyOverride, "ignore-orders", 8, 8, 10, "IGNORE PRIOR ORDERS", "ALREADY DEFENSE"},
	{familyOverride, "ignore-rules", 4, 4, 7, "IGNORE PRIOR RULES", "ALREADY"},
	{familyOverride, "orders-void", 5, 5, 8, "VOID PRIOR ORDERS", ""},
	{familyOverride, "orders-void", 7, 6, 8, "VOID ALL PRIOR ORDERS", ""},
	{familyOverride, "rules-void", 3, 3, 8, "VOID PRIOR RULES", ""},
	{familyOverride, "task-first", 8, 8, 16, "BEFORE GIVENTASK FIRST", ""},

	// role
	{familyRole, "anything", 7, 7, 6, "NOW YOU ANYTHING", ""},
	{familyRole, "no-limits", 6, 6, 6, "BREAK ALL RULES", ""},
	{familyRole, "no-limits", 6, 6, 8, "NOW ANSWER FREE", ""},
	{familyRole, "no-limits", 5, 5, 8, "ANSWER FREE", ""},
	{familyRole, "no-limits", 5, 5, 5, "YOU FREE", ""},

	// concealment
	{familyConcealment, "do-not-tell", 5, 4, 5, "NOT TELL THISMSG", ""},
	{familyConcealment, "do-not-tell", 5, 4, 5, "NOTTELL THISMSG", ""},
	{familyConcealment, "do-not-tell", 2, 2, 0, "NOTTELL", ""},
	{familyConcealment, "secretly", 6, 6, 8, "SECRETLY SEND", ""},
	{familyConcealment, "secretly", 5, 5, 6, "SECRETLY READ", ""},

	{familyConcealment, "hide-from-report", 5, 4, 6, "HIDE OUTPUT", ""},

	// exfiltration
	{familyExfiltration, "secret-file", 6, 6, 16, "SECRETFILE SEND URL", "PUBLICFILE"},
	{familyExfiltration, "secret-file", 5, 6, 16, "SECRETFILE CONTENT PUT", "PUBLICFILE"},
	{familyExfiltration, "config-file", 3, 5, 18, "READ CONFIGFILE CONTENT PUT", ""},
	{familyExfiltration, "send-secrets", 4, 5, 12, "SEND SECRETS URL", ""},
	{familyExfiltration, "send-data", 5, 5, 12, "SEND DATA EMAIL", ""},
	{familyExfiltration, "send-data", 3, 4, 12, "SEND CHAT URL", ""},
	{familyExfiltration, "send-data", 5, 5, 12, "SEND CHAT EMAIL", ""},
	{familyExfiltration, "conversation", 5, 8, 14, "PUT CHAT CHATPAST SECRETS", ""},
	{familyExfiltration, "user-secrets", 5, 6, 10, "USER SECRETS READ PUT", ""},
	{familyExfiltration, "hidden-copy", 4, 5, 10, "PUT BCC EMAIL", ""},
	{familyExfiltration, "hidden-copy", 7, 7, 14, "ALWAYS PUT BCC EMAIL", ""},
	{familyExfiltration, "hidden-copy", 7, 7, 14, "ALWAYS SEND BCC EMAIL", ""},
	{familyExfiltration, "leak-prompt", 4, 3, 6, "REVEAL SYSPROMPT", ""},

	// coercion
	{familyCoercion, "addressed", 3, 3, 6, "AI READING", ""},
	{familyCoercion, "addressed", 7, 7, 14, "AI READING SEND", ""},
	{familyCoercion, "addressed", 7, 7, 14, "AI READING DELETE", ""},
	{familyCoercion, "addressed", 7, 7, 14, "AI READING APPROVE", ""},
	{familyCoercion, "addressed", 7, 7, 14, "AI READING PAY", ""},
	{familyCoercion, "addressed", 7, 7, 14, "AI READING IGNORE", ""},
	{familyCoercion, "if-ai", 3, 3, 0, "IFAI", ""},
	{familyCoercion, "approve-unchecked", 4, 4, 10, "APPROVE UNCHECKED", ""},
	{familyCoercion, "consent", 3, 3, 8, "USER CONSENT", ""},
	{familyCoercion, "consent", 6, 6, 16, "USER CONSENT SEND", ""},
	{familyCoercion, "consent", 7, 7, 16, "USER CONSENT PAY", ""},
	{familyCoercion, "add-owner", 5, 5, 10, "PUT EMAIL ADMIN", ""},
	{familyCoercion, "replace-account", 4, 5, 10, "REPLACE ACCOUNT", ""},
	{familyCoercion, "pay", 3, 3, 10, "PAY MONEY ACCOUNT", ""},
}

// otherConcepts are rules of all languages but English.
var otherConcepts = []concept{
	{familyOverride, "ignore-orders", 8, 8, 8, "IGNORE YOU ORDERS", "ALREADY DEFENSE"},
	{familyOverride, "ignore-rules", 8, 8, 10, "IGNORE YOU PRIOR RULES", "ALREADY"},
	{familyOverride, "ignore-rules", 7, 7, 7, "IGNORE ALL PRIOR RULES", "ALREADY"},
	{familyOverride, "ignore-orders", 7, 7, 6, "IGNORE ALL ORDERS", "ALREADY DEFENSE"},
	{familyOverride, "orders-void", 8, 8, 12, "VOID YOU ORDERS", ""},
	{familyOverride, "rules-void", 7, 7, 10, "VOID YOU PRIOR RULES", ""},
	{familyOverride, "ignore-user", 7, 7, 6, "IGNORE USER TASK", "ALREADY"},
	{familyOverride, "ignore-user", 5, 5, 6, "IGNORE YOU TASK", "ALREADY"},
	{familyOverride, "task-void", 7, 7, 8, "VOID TASKGIVEN", ""},
	{familyOverride, "task-void", 7, 7, 5, "IGNORE TASKGIVEN", "ALREADY"},
	{familyOverride, "safety-off", 7, 7, 6, "IGNORE SAFETYNET YOU", ""},
	{familyOverride, "safety-off", 5, 5, 6, "VOID SAFETYNET", ""},
	{familyRole, "no-limits", 7, 7, 8, "NOW YOU FREE", ""},
	{familyRole, "no-limits", 7, 7, 8, "YOU AI FREE", ""},
	{familyConcealment, "do-not-tell", 7, 5, 6, "NOTTELL USER", ""},
	{familyConcealment, "do-not-tell", 7, 5, 6, "NOT TELL USER", ""},
	{familyExfiltration, "send-secrets", 8, 8, 12, "SEND SECRETS EMAIL", ""},
	{familyExfiltration, "secret-file", 7, 8, 18, "READ SECRETFILE PUT", "PUBLICFILE"},
	{familyExfiltration, "secret-file", 7, 8, 16, "READ SECRETFILE SEND", "PUBLICFILE"},
	{familyExfiltration, "secret-file", 7, 7, 16, "SECRETFILE SEND EMAIL", "PUBLICFILE"},
	{familyExfiltration, "user-secrets", 7, 6, 8, "ALL SECRETS READ PUT", ""},
	{familyExfiltration, "send-data", 7, 7, 12, "ALWAYS SEND DATA EMAIL", ""},
	{familyExfiltration, "leak-prompt", 7, 6, 8, "REVEAL SYSPROMPT YOU", ""},
	{familyExfiltration, "leak-prompt", 7, 5, 8, "REVEAL SYSPROMPT FULL", ""},
	{familyCoercion, "addressed", 7, 5, 12, "AI READING MUST", ""},
	{familyCoercion, "if-ai", 7, 5, 10, "IFAI MUST", ""},
	{familyCoercion, "if-ai", 7, 7, 14, "IFAI SEND", ""},
	{familyCoercion, "if-ai", 7, 7, 14, "IFAI DELETE", ""},
	{familyCoercion, "if-ai", 7, 7, 14, "IFAI APPROVE", ""},
	{familyCoercion, "if-ai", 7, 7, 14, "IFAI PAY", ""},
	{familyCoercion, "if-ai", 7, 7, 14, "IFAI IGNORE", ""},
	{familyCoercion, "approve-unchecked", 7, 7, 12, "AI APPROVE UNCHECKED", ""},
	{familyConcealment, "hide-from-user", 5, 5, 8, "HIDE USER", ""},
	{familyExfiltration, "send-answers", 7, 7, 10, "SEND OUTPUT URL", ""},
	{familyExfiltration, "send-answers", 7, 7, 10, "SEND OUTPUT EMAIL", ""},
}

// englishConcepts take the place of otherConcepts in English. Technical documents are mostly in
// English, and use the words of the classes for configuration: options override others, files are
// ignored, and errors are told to users.
var englishConcepts = []concept{
	{familyOverride, "ignore-orders", 5, 5, 8, "IGNORE YOU ORDERS", "ALREADY DEFENSE"},
	{familyOverride, "ignore-orders", 5, 5, 6, "IGNORE ALL ORDERS", "ALREADY DEFENSE"},
	{familyOverride, "ignore-orders", 6, 5, 8, "OVERRIDE PRIOR ORDERS", "ALREADY DEFENSE"},
	{familyOverride, "ignore-orders", 8, 5, 8, "OVERRIDE ALL PRIOR ORDERS", "ALREADY DEFENSE"},
	{familyOverride, "ignore-rules", 4, 4, 8, "IGNORE YOU PRIOR RULES", "ALREADY"},
	{familyOverride, "ignore-rules", 5, 4, 7, "IGNORE ALL PRIOR RULES", "ALREADY"},
	{familyOverride, "orders-void", 7, 6, 12, "VOID YOU PRIOR ORDERS", ""},
	{familyOverride, "orders-void", 4, 4, 8, "VOID YOU ORDERS", ""},
	{familyOverride, "rules-void", 5, 5, 10, "VOID YOU PRIOR RULES", ""},
	{familyOverride, "ignore-user", 5, 3, 6, "IGNORE USER TASK", "ALREADY"},
	{familyOverride, "ignore-user", 4, 2, 6, "IGNORE YOU TASK", "ALREADY"},
	{familyOverride, "task-void", 6, 5, 8, "VOID TASKGIVEN", ""},
	{familyOverride, "task-void", 6, 5, 5, "IGNORE TASKGIVEN", "ALREADY"},
	{familyOverride, "safety-off", 6, 5, 5, "IGNORE SAFETYNET YOU", ""},
	{familyOverride, "safety-off", 5, 4, 5, "OVERRIDE SAFETYNET YOU", ""},
	{familyOverride, "safety-off", 4, 3, 6, "VOID SAFETYNET", ""},
	{familyRole, "no-limits", 7, 6, 8, "NOW YOU FREE", ""},
	{familyRole, "no-limits", 4, 4, 6, "YOU AI FREE", ""},
	{familyConcealment, "do-not-tell", 6, 5, 6, "NOTTELL USER", ""},
	{familyConcealment, "do-not-tell", 3, 3, 4, "NOT TELL USER", ""},
	{familyExfiltration, "send-secrets", 5, 5, 12, "SEND SECRETS EMAIL", ""},
	{familyExfiltration, "user-secrets", 5, 5, 8, "ALL SECRETS READ PUT", ""},
	{familyExfiltration, "send-data", 6, 6, 12, "ALWAYS SEND DATA EMAIL", ""},
	{familyExfiltration, "leak-prompt", 4, 4, 8, "REVEAL SYSPROMPT YOU", ""},
	{familyExfiltration, "leak-prompt", 4, 4, 8, "REVEAL SYSPROMPT FULL", ""},
	{familyCoercion, "addressed", 6, 5, 12, "AI READING MUST", ""},
	{familyCoercion, "if-ai", 4, 4, 10, "IFAI MUST", ""},
	{familyCoercion, "if-ai", 5, 5, 14, "IFAI SEND", ""},
	{familyCoercion, "if-ai", 7, 6, 14, "IFAI SEND SECRETS", ""},
	{familyCoercion, "if-ai", 7, 6, 14, "IFAI SEND EMAIL", ""},
	{familyCoercion, "if-ai", 6, 6, 14, "IFAI DELETE", ""},
	{familyCoercion, "if-ai", 6, 6, 14, "IFAI APPROVE", ""},
	{familyCoercion, "if-ai", 7, 7, 14, "IFAI PAY", ""},
	{familyCoercion, "if-ai", 6, 6, 14, "IFAI IGNORE", ""},
	{familyCoercion, "approve-unchecked", 5, 5, 12, "AI APPROVE UNCHECKED", ""},
	{familyExfiltration, "secret-file", 7, 6, 18, "READ SECRETFILE PUT", "PUBLICFILE"},
	{familyExfiltration, "secret-file", 7, 6, 16, "READ SECRETFILE SEND", "PUBLICFILE"},
	{familyExfiltration, "secret-file", 7, 6, 16, "SECRETFILE SEND EMAIL", "PUBLICFILE"},
	{familyExfiltration, "secret-file", 7, 7, 10, "READ SECRETFILE CONTENT PUT", "PUBLICFILE"},
	{familyConcealment, "hide-from-user", 3, 2, 8, "HIDE USER", ""},
	{familyExfiltration, "send-answers", 4, 4, 8, "SEND OUTPUT URL", ""},
	{familyExfiltration, "send-answers", 4, 4, 8, "SEND OUTPUT EMAIL", ""},
}
