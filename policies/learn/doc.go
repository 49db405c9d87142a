// Package learn writes policies from recorded messages: which servers, tools, prompts and resources
// each group of principals uses, what the arguments look like, how often servers are called, and
// what servers ask of clients.
//
// # Guarantees
//
//   - A policy is learned only from requests and answers that passed, and in which no stage found
//     anything or changed anything. Stages may have added to them, as the plugin trace does. A
//     request that was not answered, or was answered with an error, is not learned from.
//   - Every statement is a rule of its own, in its own file, with its evidence as a comment: the
//     number of requests and principals, the first and the last time, and the numbers of records.
//   - The statements are checked against parts of the log that they were not learned from (see
//     Validation). A statement that refuses requests of these parts is made more general.
//   - The memory is bounded, whatever the log has. A server, an item or an argument that exceeds a
//     bound is not learned, and is refused by the policy. An object in the arguments that had more
//     than 64 different members may have any member. Of a statement, at most 1000 principals are
//     counted.
//   - What only one of at least three principals brings into a statement is marked in its file:
//     names, values, folders, hosts, characters, lengths, and numbers beyond the head-room of the
//     others. Types of values are not marked.
//   - Names and values that clients and servers chose are only in strings of Rego. They cannot end
//     a comment or a string, name a file outside of the folder, or make the policy invalid.
//
// # Why groups are the ways of authentication
//
// The log has no groups and claims of principals. Principals with the same way of authentication
// and the same issuer are therefore one group.
//
// # Why values are generalized
//
// A rule with the exact values of one day refuses the honest work of the next day. A statement
// about an argument therefore names what the values have in common: the folders of paths, the hosts
// of URLs, the characters and the length of other texts, the range of numbers. Only a few texts
// that were all seen early and often are an enumeration.
package learn
