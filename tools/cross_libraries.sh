# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the scripts that build for other systems, from the root of the repository. They define
# 'say'. Debian's packages for the other system are unpacked below build/cross; nothing but the
# compiler and the emulator is installed on this machine.

cross_suite=bookworm
cross_mirror=http://deb.debian.org/debian

# $1: folder for the state of apt; $2: suite; $3: architecture. Later calls of apt-get in this shell
# know that suite and architecture alone, and install nothing.
use_foreign_apt() {
  local state=$PWD/$1 keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  [[ -f $keyring ]] || { say "no $keyring: install debian-archive-keyring"; exit 1; }
  mkdir -p "$state"/{lists/partial,archives/partial}
  : >"$state/status"
  printf '%s\n' "Types: deb" "URIs: $cross_mirror" "Suites: $2" "Components: main" \
    "Signed-By: $keyring" >"$state/debian.sources"
  cat >"$state/apt.conf" <<END
APT::Architecture "$3";
APT::Architectures { "$3"; };
APT::Sandbox::User "";
Dir::Etc::sourcelist "$state/debian.sources";
Dir::Etc::sourceparts "/dev/null";
Dir::State "$state";
Dir::State::status "$state/status";
Dir::Cache "$state";
END
  export APT_CONFIG=$state/apt.conf
  apt-get update -qq
}

# $1: folder for the state of apt; $2: suite; $3: architecture; $4: folder; the rest: packages, which
# are unpacked into the folder, once.
unpack_packages() (
  local state=$1 suite=$2 architecture=$3 folder=$4
  shift 4
  [[ $(cat "$folder/.unpacked" 2>/dev/null) == "$suite $*" ]] && return
  say "unpacking Debian packages for $architecture into $folder"
  rm -rf "$folder"
  mkdir -p "$folder/packages"
  use_foreign_apt "$state" "$suite" "$architecture"
  (cd "$folder/packages" && apt-get download -qq "$@")
  local package
  for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$folder"; done
  echo "$suite $*" >"$folder/.unpacked"
)

# $1: a system, by the name of its compiler. Installs compiler and emulator, unpacks the libraries that
# CMake looks for, and leaves the options of CMake in the array cross_options and the command that runs
# the system's programs in cross_emulator.
prepare_cross_build() {
  local folder=build/cross/$1
  cross_options=(--toolchain "$PWD/cmake/toolchains/$1.cmake")
  case $1 in
    aarch64-linux-gnu)
      install_debian_packages g++-aarch64-linux-gnu qemu-user-static
      unpack_packages build/cross/apt-arm64 "$cross_suite" arm64 "$folder/libraries" \
        libhwy-dev libhwy1 libgtest-dev libgmock-dev libfmt-dev libfmt9 libcli11-dev \
        nlohmann-json3-dev
      cross_options+=(-DOPENVC_CROSS_LIBRARIES="$PWD/$folder/libraries")
      cross_emulator=(qemu-aarch64-static -L /usr/aarch64-linux-gnu
        -E LD_LIBRARY_PATH="$PWD/$folder/libraries/usr/lib/aarch64-linux-gnu")
      ;;
    *)
      say "unknown system '$1'; expected aarch64-linux-gnu"
      exit 2
      ;;
  esac
  cross_options+=("-DCMAKE_CROSSCOMPILING_EMULATOR=$(IFS=';'; echo "${cross_emulator[*]}")")
}
