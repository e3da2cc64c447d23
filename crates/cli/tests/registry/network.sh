# Runs a command in a network of its own, in which a package registry answers at 203.0.113.10.
# Arguments: directory with serve.py, certificate, key and hosts; then the command.
set -eu
place=$1
shift
mkfifo "$place/ready" "$place/go"
ip link set lo up
# The registry is in another network namespace: the proxy refuses every address of its own machine.
unshare --net sh -c 'echo made > "$1/ready"; read go < "$1/go"; ip link set lo up
  ip address add 203.0.113.10/24 dev registry; ip link set registry up
  exec python3 "$1/serve.py" "$1" "$1/certificate.pem" "$1/key.pem" > "$1/ready"' sh "$place" &
server=$!
trap 'kill $server' EXIT
read made < "$place/ready"
ip link add name machine type veth peer name registry netns $server
ip address add 203.0.113.1/24 dev machine
ip link set machine up
echo go > "$place/go"
read listens < "$place/ready"
mount --bind "$place/hosts" /etc/hosts
"$@"
