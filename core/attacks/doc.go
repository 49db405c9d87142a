// Package attacks has attacks on users of MCP, and honest messages that look like them. It plays
// each of them through a gateway: a scripted client at one end, a scripted server at the other.
//
// A case is a file in the folder cases. It has what the server answers, what the client asks for,
// and marks: texts that stand for the harm or, in an honest case, for the use. [Case.Play] reports
// whether all marks have arrived at the end that they are for. So it does not matter by which stage
// and with which answer a gateway stops an attack. To add a case, add a file.
//
// # The file
//
// The name of the file is the name of the case. The file is TOML:
//
//	class    one of Classes
//	about    one sentence: what happens
//	source   where the attack was published; of an honest case, where such messages come from
//	owasp    the entries of the lists in Lists that the attack belongs to
//	honest   true if the messages are honest
//	eras     legacy, modern; both if it is not there
//	needs    rug-pull, if only a gateway that remembers definitions can stop it
//
//	[[request]]  a request of the client: method and params; the params are JSON
//	[server]     the results of the server by method; the values are JSON
//	[[later]]    results that replace those of [server], after request number after
//	[ask]        a request of the server while it handles tools/call: method and params
//	[mark]       reaches = client or server, and texts: the texts that must all arrive
package attacks
