package main

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// maxServerName limits the length of the name of a wrapped server, in bytes. The names of files
// contain this name.
const maxServerName = 64

// serverName returns the name that a wrapped server has in the audit log: the name of the package
// or program that the command runs. For "npx -y @modelcontextprotocol/server-filesystem /srv", it
// returns server-filesystem. All characters of the name are valid in the name of a server.
func serverName(command []string) string {
	for len(command) > 0 {
		launcher := programName(command[0])
		program, rest := launchedBy(launcher, command[1:])
		if program == "" && rest == nil {
			if name := nameOf(command[0]); name != "" {
				return name
			}
			return "server"
		}
		if rest == nil {
			if name := nameOf(program); name != "" {
				return name
			}
			return nameOf(launcher)
		}
		command = rest
	}
	return "server"
}

// programName returns the name of a program without its folder and the ending .exe or .cmd.
func programName(word string) string {
	name := strings.ToLower(filepath.Base(word))
	for _, ending := range []string{".exe", ".cmd"} {
		name = strings.TrimSuffix(name, ending)
	}
	if strings.HasPrefix(name, "python") {
		return "python" // python3.12
	}
	return name
}

// optionsWithValue are the options of each launcher that take the next word as their value.
var optionsWithValue = map[string][]string{
	"npx":    {"-p", "--package", "-c", "--call", "--registry", "--cache", "-w", "--workspace"},
	"node":   {"-r", "--require", "--import", "--loader", "--env-file", "-C", "--conditions"},
	"python": {"-W", "-X"},
	"uv":     {"--with", "--python", "-p", "--directory", "--project", "--index-url", "--env-file"},
	"uvx":    {"--with", "--python", "-p", "--index-url", "--refresh-package", "--env-file"},
	"pipx":   {"--spec", "--python", "--index-url", "--pip-args"},
	"env":    {"-u", "--unset", "-C", "--chdir"},
	"docker": {"-e", "--env", "--env-file", "-v", "--volume", "--mount", "--name", "-p",
		"--publish", "--network", "--net", "-w", "--workdir", "-u", "--user",
		"--entrypoint", "-l", "--label",
		"--platform", "--pull", "-h", "--hostname", "-m", "--memory", "--cpus", "--add-host",
		"--cap-add", "--cap-drop", "--security-opt", "--tmpfs", "--restart"},
}

// launchedBy returns the program that a launcher runs with the given arguments. If the launcher
// runs another launcher, as in "env npx …", launchedBy returns the command of the other launcher
// instead. It returns neither if the parameter launcher is not the name of a launcher, or if the
// arguments name no program.
func launchedBy(launcher string, args []string) (program string, command []string) {
	subcommands := map[string][]string{"npm": {"exec", "x"}, "pnpm": {"dlx", "exec"},
		"yarn": {"dlx"}, "bun": {"x", "run"}, "deno": {"run"}, "pipx": {"run"},
		"docker": {"run"}, "podman": {"run"}, "uv": {"run", "tool"}}
	// For some launchers, sameOptions has another launcher that takes the same options.
	sameOptions := map[string]string{"npm": "npx", "pnpm": "npx", "yarn": "npx", "bun": "npx",
		"bunx": "npx", "pnpx": "npx", "deno": "node", "tsx": "node", "podman": "docker"}
	if wanted, ok := subcommands[launcher]; ok {
		at := slices.IndexFunc(args, func(word string) bool {
			return !strings.HasPrefix(word, "-")
		})
		if at < 0 {
			return "", nil
		}
		if !slices.Contains(wanted, args[at]) {
			if launcher == "bun" || launcher == "deno" {
				return args[at], nil
			}
			return "", nil
		}
		if args = args[at+1:]; launcher == "uv" && args == nil {
			return "", nil
		}
	} else if _, ok := optionsWithValue[launcher]; !ok && sameOptions[launcher] == "" {
		return "", nil
	}
	kind := launcher
	if other := sameOptions[launcher]; other != "" {
		kind = other
	}
	for i := 0; i < len(args); i++ {
		word := args[i]
		name, value, hasValue := strings.Cut(word, "=")
		switch {
		case kind == "python" && word == "-m" && i+1 < len(args):
			return args[i+1], nil
		case kind == "npx" && (name == "-p" || name == "--package"):
			// The name of the package describes the server better than the name of the program.
			if !hasValue && i+1 < len(args) {
				value = args[i+1]
			}
			return value, nil
		case word == "--":
			continue
		case kind == "env" && hasValue && !strings.HasPrefix(word, "-"):
			continue // KEY=VALUE
		case strings.HasPrefix(word, "-"):
			if !hasValue && slices.Contains(optionsWithValue[kind], word) {
				i++
			}
		case kind == "env":
			return "", args[i:]
		case launcher == "uv" && word == "run": // uv tool run
			continue
		case launcher == "uv" && (programName(word) == "python" || programName(word) == "mcp"):
			return "", args[i:]
		default:
			return word, nil
		}
	}
	return "", nil
}

var (
	versionSuffix = regexp.MustCompile(`([^/])(@[^/]*|[=<>~!]=.*|:[^/]*)$`)
	// matches names of files and folders that do not describe the server
	namesNothing = regexp.MustCompile(`^(index|main|server|cli|app|start|run|__main__|dist|build|` +
		`src|lib|out|bin|esm|cjs|target|release|debug)$`)
	inModules = regexp.MustCompile(`node_modules/((?:@[^/]+/)?[^/]+)/`)
	scriptExt = regexp.MustCompile(`\.(c|m)?(js|ts)$|\.py$|\.exe$|\.sh$`)
)

// nameOf returns the name of a server for a package, an image or a file. It returns "" if no valid
// character is left.
func nameOf(word string) string {
	word = filepath.ToSlash(word)
	if found := inModules.FindAllStringSubmatch(word, -1); found != nil {
		word = found[len(found)-1][1]
	} else if scriptExt.MatchString(word) {
		word = scriptExt.ReplaceAllString(word, "")
		for namesNothing.MatchString(strings.ToLower(path.Base(word))) &&
			path.Dir(word) != "." && path.Dir(word) != "/" {
			word = path.Dir(word)
		}
	} else {
		word = strings.TrimPrefix(word, "npm:")
		word = versionSuffix.ReplaceAllString(word, "$1")
	}
	word = strings.TrimSuffix(path.Base(word), ".git")
	word = strings.TrimLeft(notInNames.ReplaceAllString(strings.ToLower(word), "-"), "-0123456789")
	return strings.TrimRight(word[:min(len(word), maxServerName)], "-")
}
