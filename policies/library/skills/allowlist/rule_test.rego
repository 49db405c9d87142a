package gatekit.skills.allowlist_test

import data.gatekit.skills.allowlist

config := {"skills/allowlist": {"skills": ["git-*", "acme/billing/refunds", "github://owner/repo/*"], "servers": {"docs": ["pdf"]}}}

uris := {"skill://git-workflow/SKILL.md", "skill://acme/billing/refunds/SKILL.md", "skill://acme/billing/SKILL.md", "skill://acme/refunds/SKILL.md", "github://owner/repo/x/SKILL.md", "github://owner/other/x/SKILL.md", "skill://pdf/SKILL.md", "skill://git-workflow/skill.md", "other://git-workflow/SKILL.md", "skill://git-workflow/../pdf2/SKILL.md", "skill://git-a/%2e%2e/pdf2/SKILL.md", "skill://git-a%2F..%2Fpdf2/SKILL.md", "skill://git-a?/SKILL.md", "skill://git-a//pdf2/SKILL.md", "skill://SKILL.md"}

list(server) := {"method": "skills/list", "kind": "response", "server": server, "items": [{"uri": uri, "resources": []} | some uri in uris]}

get(server, uri) := {"method": "skills/get", "kind": "request", "server": server, "name": uri}

use(method, uri) := {"method": method, "kind": "request", "server": "docs", "name": uri}

test_other_skills_are_hidden if {
	uris - allowlist.hide == {"skill://git-workflow/SKILL.md", "skill://acme/billing/refunds/SKILL.md", "github://owner/repo/x/SKILL.md", "skill://pdf/SKILL.md"} with input as list("docs") with data.config as config
	"skill://pdf/SKILL.md" in allowlist.hide with input as list("evil") with data.config as config
}

test_list_and_get_agree if {
	every server in {"docs", "evil"} {
		every uri in uris {
			hidden := uri in allowlist.hide with input as list(server) with data.config as config
			denied := count(allowlist.deny) > 0 with input as get(server, uri) with data.config as config
			hidden == denied
		}
	}
}

test_files_of_allowed_skills_are_read if {
	every uri in {"skill://pdf/SKILL.md", "skill://pdf/scripts/run.py", "skill://acme/billing/refunds/a/b", "file:///x", "github://owner/other/x/SKILL.md"} {
		allowlist.deny == set() with input as use("resources/read", uri) with data.config as config
	}
	every uri in {"skill://pdf", "skill://pdf/scripts", "skill://acme/billing/refunds"} {
		allowlist.deny == set() with input as use("resources/directory/read", uri) with data.config as config
	}
}

test_other_files_are_not_read if {
	every uri in {"skill://evil/SKILL.md", "skill://pdfs/SKILL.md", "skill://pdf", "skill://acme/billing/SKILL.md", "SKILL://evil/a", " skill:evil", "skill://pdf/../evil/SKILL.md", "skill://pdf/..", "skill://pdf/%2E%2E/evil/a", `skill://pdf/..\evil`, "skill://pdf/a?/../../evil", "skill:pdf/a", "skill:///pdf/a"} {
		count(allowlist.deny) == 1 with input as use("resources/read", uri) with data.config as config
	}
	every uri in {"skill://acme/billing", "skill://acme", "skill://evil", "skill://"} {
		count(allowlist.deny) == 1 with input as use("resources/directory/read", uri) with data.config as config
		count(allowlist.deny) == 1 with input as use("resources/subscribe", uri) with data.config as config
	}
}

test_skills_without_digests_are_hidden if {
	entry := {"uri": "skill://pdf/SKILL.md", "resources": "dynamic"}
	listed := object.union(list("docs"), {"items": [entry]})
	answer := {"method": "skills/get", "kind": "response", "server": "docs", "name": "skill://pdf/SKILL.md", "result": {"skill": entry}}
	allowlist.hide == {"skill://pdf/SKILL.md"} with input as listed with data.config as config
	count(allowlist.deny) == 1 with input as answer with data.config as config
	allowing := {"skills/allowlist": {"skills": ["*"], "dynamic": true}}
	allowlist.hide == set() with input as listed with data.config as allowing
	allowlist.deny == set() with input as answer with data.config as allowing
}

test_no_skill_is_allowed_without_settings if {
	count(allowlist.hide) == count(uris) with input as list("docs")
	count(allowlist.deny) == 1 with input as get("docs", "skill://pdf/SKILL.md")
	count(allowlist.deny) == 1 with input as use("resources/read", "skill://pdf/SKILL.md")
}

test_get_without_name_is_denied if {
	count(allowlist.deny) == 1 with input as {"method": "skills/get", "kind": "request"} with data.config as {"skills/allowlist": {"skills": ["*"]}}
}
