# bash completion for kvctl

_kvctl() {
    local line kvctl=${1/#\~\//$HOME/}
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(_KVCTL_COMPLETE=bash "$kvctl" "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
}

complete -o nospace -o nosort -F _kvctl kvctl 2>/dev/null || complete -o nospace -F _kvctl kvctl
