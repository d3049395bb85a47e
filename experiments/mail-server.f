# A mail server in Filebench's language. Each of 16 threads removes a mail, delivers one, reads one and adds to it, and reads another; what
# is written is made durable at once. The numbers are those of the built-in workload `varmail`, on a small volume.
#
#   basalt lab workload experiments/mail-server.f --image card.img
#   basalt lab point engine workload=experiments/mail-server.f:mails=20000 size=2G

set $place=/srv
set $mails=960
set $mailsize=cvar(type=cvar-gamma,parameters=mean:32768;gamma:1.5)
set $addition=16k
set $clients=16

define fileset name=mailbox,path=$place,size=$mailsize,entries=$mails,dirwidth=1000000,prealloc=80

define process name=server,instances=1
{
  thread name=client,memsize=10m,instances=$clients
  {
    flowop deletefile name=remove,filesetname=mailbox

    flowop createfile name=new,filesetname=mailbox,fd=1
    flowop appendfilerand name=deliver,iosize=$addition,fd=1
    flowop fsync name=delivered,fd=1
    flowop closefile name=new-done,fd=1

    flowop openfile name=choose,filesetname=mailbox,fd=1
    flowop readwholefile name=read,fd=1,iosize=1m
    flowop appendfilerand name=add,iosize=$addition,fd=1
    flowop fsync name=added,fd=1
    flowop closefile name=choose-done,fd=1

    flowop openfile name=another,filesetname=mailbox,fd=1
    flowop readwholefile name=read-another,fd=1,iosize=1m
    flowop closefile name=another-done,fd=1
  }
}

run 60
