package policies

import (
	"os"
	"regexp"
	"slices"
	"strings"

	"gatekit/core/uris"
)

// localSchemes are schemes of texts with which a common library opens a local file or socket:
// fsspec, PHP, Java, SQL drivers, GDAL, ImageMagick, ffmpeg, package managers, container tools.
// The text after the scheme is or contains a path.
var localSchemes = []string{"local", "localfs", "osfs", "vfs", "vfszip", "netdoc", "jar", "wsjar",
	"zip", "tar", "gzip", "zlib", "bzip2", "rar", "phar", "glob", "compress.zlib",
	"compress.bzip2", "sqlite", "sqlite3", "duckdb", "h2", "derby", "unix", "npipe", "ipc", "dir",
	"oci", "oci-archive", "oci-layout", "docker-archive", "link", "portal", "netcdf", "hdf5",
	"gpkg", "gtiff_dir", "label", "caption", "text", "cache", "async", "crypto", "simplecache",
	"filecache", "blockcache", "cached", "reference"}

// commandSchemes are schemes of texts that run a command, open any descriptor, or name a file in a
// way of their own.
var commandSchemes = []string{"php", "expect", "ext", "fd", "msl", "mvg", "subfile", "concat",
	"tee", "ephemeral"}

// outerSchemes stand before another URI: view-source:file:///x, git+file:///x.
var outerSchemes = []string{"view-source", "jdbc", "jar", "file", "git", "hg", "svn", "bzr", "feed",
	"cache", "async", "crypto", "wsjar"}

// isLocalScheme reports whether a scheme, in lower case and without its colon, is one of schemes.
// In sqlite+aiosqlite and git+file, each part is a scheme.
func isLocalScheme(name string, schemes []string) bool {
	for part := range strings.SplitSeq(name, "+") {
		if slices.Contains(schemes, part) {
			return true
		}
	}
	return false
}

// innerPath finds absolute paths within a text: the text after ":/", "=/", "@~/" and similar.
var innerPath = regexp.MustCompile(`[:"',@=|;!]((?:/|~/|[A-Za-z]:[/\\]|\\\\|(?i:file:))[^|"']*)`)

// maxInnerPaths bounds the paths in one text, not counting the whole text.
const maxInnerPaths = 16

// schemeProblem returns the problem of a text that a local library opens as a file, although it is
// neither a path nor a file: URI. It returns "" for all other texts.
func (b pathBounds) schemeProblem(text string, depth int) string {
	if depth > 4 {
		return "the path has too many schemes"
	}
	name := strings.ToLower(strings.TrimSuffix(uriScheme(text), ":"))
	comma := strings.ToLower(text[:max(strings.IndexByte(text, ','), 0)]) // subfile,,start,0,…
	switch {
	case isLocalScheme(name, commandSchemes), isLocalScheme(comma, commandSchemes):
		return "the scheme " + strings.TrimSuffix(comma, ",") + name + " can open any file"
	case strings.Contains(text, "::") && !webURL.MatchString(text): // zip://a.txt::/b.zip
		for part := range strings.SplitSeq(text, "::") {
			if !startsAsPath(part) && !leavesStart(part) {
				continue
			}
			if why := b.problemAt(part, depth+1); why != "" {
				return why
			}
		}
		return ""
	case name == "" && strings.HasPrefix(text, "@") && looksLocal(text[1:]): // curl
		return b.problemAt(text[1:], depth+1)
	case name == "":
		return ""
	}
	rest := text[len(name)+1:]
	if isLocalScheme(name, outerSchemes) && name != "file" && uriScheme(rest) != "" {
		return b.problemAt(rest, depth+1)
	}
	if strings.HasSuffix(name, "+file") {
		return b.problemAt("file:"+rest, depth+1)
	}
	if !isLocalScheme(name, localSchemes) {
		return ""
	}
	rest = strings.TrimPrefix(rest, "//")
	paths := []string{rest}
	for at := 0; ; {
		m := innerPath.FindStringSubmatchIndex(rest[at:])
		if m == nil {
			break
		}
		if len(paths) > maxInnerPaths {
			return "the path contains too many paths"
		}
		paths = append(paths, rest[at+m[2]:at+m[3]])
		at += m[2]
	}
	for _, p := range paths {
		if strings.HasPrefix(p, "//") { // sqlite:////x
			p = "/" + strings.TrimLeft(p, "/")
		}
		if at := strings.IndexAny(p, "?#"); at >= 0 {
			if why := b.problemAt(p[:at], depth+1); why != "" {
				return why
			}
		}
		if !startsAsPath(p) {
			if leavesStart(p) {
				return "the path leads above its base folder"
			}
			continue
		}
		if why := b.problemAt(p, depth+1); why != "" {
			return why
		}
	}
	return ""
}

// startsAsPath reports whether a text is an absolute path, or a URI with a scheme that local
// libraries open.
func startsAsPath(text string) bool {
	name := strings.ToLower(strings.TrimSuffix(uriScheme(text), ":"))
	return strings.HasPrefix(text, "/") || strings.HasPrefix(text, `\\`) || strings.HasPrefix(text,
		"~/") || uris.HasDrive(text) || name == "file" || isLocalScheme(name, localSchemes) ||
		isLocalScheme(name, commandSchemes)
}

// systemFolders are the first segments of absolute paths that are no paths of web pages. An
// argument with such a value is a path, whatever its name is.
var systemFolders = regexp.MustCompile(`^/(?:(?:bin|boot|dev|etc|lib|lib32|lib64|mnt|nix|opt|` +
	`private|proc|root|sbin|snap|srv|sys|tmp|usr|var|Applications|Library|System|Users|Volumes|` +
	`vsi[a-z0-9]+)/+[^/]|home/+[^/]+/+[^/])`)

var (
	homePath     = regexp.MustCompile(`^~[A-Za-z0-9_-]*[/\\][^ ]`)
	variablePath = regexp.MustCompile(
		`^(?:\$[A-Za-z_]+|\$\{[A-Za-z_]+\}|%[A-Za-z_]+%)[/\\][^ /]`)
	windowsPath = regexp.MustCompile(`^(?:[A-Za-z]:[/\\]|\\\\[^\\/ ]+\\)[^\\/]`)
)

// looksLocal reports whether one decoding of a text is the path of a local file, whatever the name
// of its argument is.
func looksLocal(text string) bool {
	if strings.ContainsAny(text, "\n\r") || webURL.MatchString(text) {
		return false
	}
	name := strings.ToLower(strings.TrimSuffix(uriScheme(text), ":"))
	if name == "text" || name == "label" || name == "caption" { // may also be prose
		name = ""
	}
	rest := text[min(len(name)+1, len(text)):]
	isRooted := strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, ":")
	switch {
	case strings.HasPrefix(text, "subfile,,"), name == "file" && (isRooted ||
		strings.HasPrefix(rest, "~")):
		return true
	case name != "" && isRooted && (isLocalScheme(name, localSchemes) || isLocalScheme(name,
		commandSchemes) || strings.HasSuffix(name, "+file")):
		return true
	case isLocalScheme(name, outerSchemes) && uriScheme(rest) != "":
		return looksLocal(rest)
	}
	return systemFolders.MatchString(text) || homePath.MatchString(text) ||
		variablePath.MatchString(text) || windowsPath.MatchString(text)
}

// isLocalPath reports whether a text is a path of this machine or looks like one, whatever the name
// of its argument is. A text looks like a path if it starts in a system folder, in a home folder,
// on a drive or with a scheme that local libraries open. If b.Links is set, a text is also a path
// of this machine when it leads to an existing file outside the folders. The file "/" and the
// files in it do not count, because routes of web pages look like them.
func (b pathBounds) isLocalPath(text string) bool {
	text = strings.TrimFunc(text, uris.IsBlank)
	if text == "" || len(text) > maxPathBytes || !strings.ContainsAny(text, `/\:%~`) &&
		isASCII(text) {
		return false
	}
	found := false
	forEachDecoding(text, func(decoding string) string {
		found = found || looksLocal(decoding) || b.Links && b.existsOutside(decoding)
		if found {
			return "found"
		}
		return ""
	})
	return found
}

// existsOutside reports whether a path, which may be relative to the base or to a root, leads to an
// existing file outside the roots.
func (b pathBounds) existsOutside(text string) bool {
	if strings.ContainsAny(text, "\x00\n") {
		return false
	}
	candidates := []string{text}
	if !strings.HasPrefix(text, "/") {
		if !leavesStart(text) {
			return false // it stays within its start, unless a symbolic link leads out
		}
		candidates = nil
		for _, start := range append([]string{b.Base}, b.Roots...) {
			if r, ok := localRoot(start); ok && strings.HasPrefix(r, "/") {
				candidates = append(candidates, r+"/"+text)
			}
		}
	}
	for _, c := range candidates {
		c = uris.CleanPath(c)
		if strings.Count(strings.TrimRight(c, "/"), "/") < 2 {
			continue
		}
		if _, err := os.Lstat(c); err == nil && b.absoluteProblem(c) != "" {
			return true
		}
	}
	return false
}

// mayBePath reports whether a text can only be meant as a path if its argument takes paths: it is
// absolute, starts in a home folder, leads to a parent folder, or has a scheme of local files.
func mayBePath(text string) bool {
	text = strings.TrimFunc(text, uris.IsBlank)
	if len(text) > maxPathBytes || strings.ContainsAny(text, "\n\r") {
		return false
	}
	may := false
	forEachDecoding(text, func(d string) string {
		may = may || looksLocal(d) || strings.HasPrefix(d, "/") && !strings.ContainsAny(d, " <>") ||
			strings.HasPrefix(d, "/") && strings.Count(d, "/") > 1 && !strings.HasPrefix(d, "//") ||
			startsAsPath(d) && !strings.HasPrefix(d, "/") || strings.HasPrefix(d, "@/") ||
			strings.Contains("/"+d, "/../") || strings.Contains(d, "::")
		if may {
			return "found"
		}
		return ""
	})
	return may
}
