// Package npmpackage installs the npm packages of servers into a folder of Gatekit, and verifies
// that an installed package is still as it was installed. A server that npx would start is then
// started from there: without the network, and always the same release.
//
// A package is installed with npm, and without running its scripts or those of its dependencies.
// npm checks every file that it gets against the SHA-512 of the registry. Install checks that the
// package is the one that was asked for, and that npm knows a digest for every dependency. It then
// lists the SHA-256 of each installed file in a file beside the tree.
//
// Find verifies the tree before each start: it has the listed files with the listed content, and no
// other file. So a package that was changed, cut off or extended is not started.
//
// # Known limits
//
//   - The integrity covers the package itself. Its dependencies are those that npm resolves when
//     the package is installed, so two machines may have other releases of them.
//   - A process of the same user that is not confined can change the tree and the list. The folder
//     is as safe as the lock file.
//   - A file that changes between the verification and its use is not found.
//   - Replaced and unused packages stay until somebody removes them; of each package, only one that
//     was replaced.
package npmpackage
