// Package clientfiles finds the configuration files of MCP clients, lists the servers in them, and
// changes how these servers are started. The table in clients.go describes the clients: where their
// files are, in which format, and where in a file the servers are.
//
// # What a change touches
//
// [Document.Wrap] puts words before the command of a server: the first word becomes the command,
// and the other words and the old command become the first arguments. These are two splices, in the
// value of the command and in the list of arguments. Every other byte of the file stays: comments,
// order, indentation, trailing commas, line endings. [Document.Unwrap] is the inverse.
//
// Before Wrap and Unwrap return, they parse the result again and compare it with the file before.
// If anything but the command and the arguments of the named servers differs, they return an error,
// and nothing is written.
//
// # Files that are left alone
//
// A file that does not parse is never changed: [Parse] returns an error with the line. The same is
// true for a file that is larger than [MaxFileSize], is not UTF-8, nests too deeply, or has the
// same key twice in a table on the way to a server. Within a file, a server is left alone if
// its command cannot be spliced safely, for example because it is a YAML alias. [Entry.Beyond] has
// the reason.
//
// # Links, modes and races
//
// [File.Replace] writes through a symbolic link to its target, because managers of dotfiles put
// links where the clients look. The link stays a link. The new file has the mode, the owner and the
// group of the old one. It does not keep extended attributes, and other hard links keep the old
// content. Replace refuses a file of another user, and a file without write permission: both are
// managed by somebody else. If a client has written the file since it was read, Replace returns
// [atomicfile.ErrChanged] and writes nothing.
package clientfiles
