# The formula of Gatekit for Homebrew. .release/release fills in the address, version and hashes.
class Gatekit < Formula
  desc "Security proxy for the Model Context Protocol"
  homepage "@HOMEPAGE@"
  version "@VERSION@"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "@HOMEPAGE@/releases/download/v@VERSION@/gatekit_@VERSION@_darwin_arm64.tar.gz"
      sha256 "@DARWIN_ARM64@"
    end
    on_intel do
      url "@HOMEPAGE@/releases/download/v@VERSION@/gatekit_@VERSION@_darwin_amd64.tar.gz"
      sha256 "@DARWIN_AMD64@"
    end
  end
  on_linux do
    on_arm do
      url "@HOMEPAGE@/releases/download/v@VERSION@/gatekit_@VERSION@_linux_arm64.tar.gz"
      sha256 "@LINUX_ARM64@"
    end
    on_intel do
      url "@HOMEPAGE@/releases/download/v@VERSION@/gatekit_@VERSION@_linux_amd64.tar.gz"
      sha256 "@LINUX_AMD64@"
    end
  end

  def install
    bin.install "gatekit"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/gatekit.bash" => "gatekit"
    zsh_completion.install "completions/gatekit.zsh" => "_gatekit"
    fish_completion.install "completions/gatekit.fish"
    doc.install "gatekit.toml.example", "THIRD_PARTY_LICENSES"
  end

  test do
    assert_match "gatekit v#{version}", shell_output("#{bin}/gatekit version")
  end
end
