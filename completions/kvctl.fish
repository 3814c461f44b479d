# fish completion for kvctl

function __kvctl_complete
    set -l words (commandline -opc)
    set -l command (string replace -r '^~/' "$HOME/" -- $words[1])
    set -e words[1]
    _KVCTL_COMPLETE=fish command $command $words (commandline -ct) 2>/dev/null
end

complete --command kvctl --no-files --keep-order --arguments '(__kvctl_complete)'
