# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the scripts that install Debian packages. They define 'say'.

# $@: names of packages. Installs those that are missing, as root or through sudo.
install_debian_packages() {
  if ! command -v apt-get >/dev/null; then
    say "no apt-get here: install the libraries that CMake asks for yourself"
    return
  fi
  local missing=() package
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  local as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      say "these packages are missing, and there is no sudo to install them with. Run as root:"
      say "  apt-get install ${missing[*]}"
      exit 1
    fi
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
