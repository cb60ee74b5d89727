# Homebrew's formula for Linux: the archive of a release, at the address in MOEFLUX_ADDRESS. `make
# release` writes the version and the checksum.
class Moeflux < Formula
  desc "Runs Mixture-of-Experts language models whose experts are streamed from the drive"
  homepage ENV.fetch("HOMEBREW_MOEFLUX_ADDRESS", "https://moeflux.invalid")
  url "#{homepage}/moeflux-@VERSION@-linux-x86_64.tar.gz"
  version "@VERSION@"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on arch: :x86_64
  depends_on :linux
  depends_on "curl"

  def install
    prefix.install Dir["*"]
    bash_completion.install_symlink share/"bash-completion/completions/moeflux"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/moeflux --version")
    refute_empty shell_output("#{bin}/moeflux run -q -n 4 'Once upon a time'")
  end
end
